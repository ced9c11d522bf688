"""One reader's view of a growing answer as server-sent events.

Events: `thinking`, `answer` replace what is shown (sent once, so that a reader that comes back starts
clean); `thinking-more`, `answer-more` append a finished block; `thinking-tail`, `answer-tail` replace
the block that still grows; `thinking-label` names the time thinking took; `foot` is what stands under
a finished answer; `close` ends the stream for good, so that the browser does not open it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from django.utils import translation
from django.utils.html import escape
from django.utils.translation import gettext

from playground.generation import UPDATE_SECONDS, Progress, follow
from playground.markdown import BlockRenderer

KEEP_ALIVE = b": keep-alive\n\n"
# Rendering a large block may take at most this share of the time.
RENDERING_SHARE = 0.1


def event(name: str, data: str) -> bytes:
    lines = data.replace("\r", "").split("\n")
    return f"event: {name}\n{''.join(f'data: {line}\n' for line in lines)}\n".encode()


class Part:
    """The thinking or the answer: which events show its progress."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.renderer = BlockRenderer()
        self._begun = self._has_tail = False

    def events(self, text: str, *, ended: bool) -> Iterator[bytes]:
        if self._begun and not text and not ended:
            return
        blocks = "".join(self.renderer.feed(text))
        if ended:
            blocks += self.renderer.finish()
        tail = "" if ended else self.renderer.tail()
        if not self._begun:
            yield event(self.name, blocks)
        elif blocks:
            yield event(f"{self.name}-more", blocks)
        if tail or self._has_tail:
            yield event(f"{self.name}-tail", tail)
        self._begun, self._has_tail = True, bool(tail)


def thinking_label(seconds: float | None) -> str:
    if seconds is None:
        return gettext("Thinking…")
    return gettext("Thought for %s s") % (f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}")


class Reader:
    def __init__(self) -> None:
        self._thinking, self._answer = Part("thinking"), Part("answer")
        self._label = ""
        self.begun = self._has_thought = False

    def events(self, progress: Progress) -> Iterator[bytes]:
        self.begun = True
        yield from self._thinking.events(progress.reasoning, ended=progress.ended)
        self._has_thought = self._has_thought or bool(progress.reasoning)
        label = thinking_label(progress.thinking_seconds)
        if self._has_thought and label != self._label:
            self._label = label
            yield event("thinking-label", escape(label))
        yield from self._answer.events(progress.content, ended=progress.ended)


async def events(*, turn_id: int, language: str, foot: Callable[[], Awaitable[str]]) -> AsyncIterator[bytes]:
    """`foot` renders what stands under the finished answer; it is called once, at the end."""
    reader = Reader()
    async for progress in follow(turn_id):
        if not (progress.content or progress.reasoning or progress.ended) and reader.begun:
            yield KEEP_ALIVE
            continue
        started_at = time.monotonic()
        with translation.override(language):
            update = b"".join(reader.events(progress))
        yield update
        spent = time.monotonic() - started_at
        if not progress.ended and spent > UPDATE_SECONDS * RENDERING_SHARE:
            await asyncio.sleep(spent / RENDERING_SHARE - UPDATE_SECONDS)
    yield event("foot", await foot())
    yield event("close", "")
