"""One reader's view of growing answers as server-sent events.

Events: `thinking`, `answer` replace what is shown (sent once, so that a reader that comes back starts
clean); `thinking-more`, `answer-more` append a finished block; `thinking-tail`, `answer-tail` replace
the block that still grows; `thinking-label` names the time thinking took; `calls` are the tools it calls;
`foot` is what stands under a finished answer; `close` ends the stream for good, so that the browser does not
open it again. Each name but the last ends with the turn's number: one stream may tell of several answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.template.loader import render_to_string
from django.utils import translation
from django.utils.html import escape
from django.utils.translation import gettext

from playground.generation import UPDATE_SECONDS, Progress, follow
from playground.json_view import OPENING
from playground.markdown import BlockRenderer
from playground.off_loop import off_loop
from playground.rendered import Rendered, keep_whole

KEEP_ALIVE = b": keep-alive\n\n"
# Rendering a large block may take at most this share of the time.
RENDERING_SHARE = 0.1
# What stands around a finished answer, by the event that brings it.
type End = Callable[[int], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Followed:
    turn_id: int
    is_json: bool = False


def event(name: str, data: str) -> bytes:
    lines = data.replace("\r", "").split("\n")
    return f"event: {name}\n{''.join(f'data: {line}\n' for line in lines)}\n".encode()


class Part:
    """The thinking or the answer: which events show its progress."""

    def __init__(self, name: str, turn_id: int) -> None:
        self.name, self.turn_id = name, turn_id
        self.renderer = BlockRenderer()
        self._begun = self._has_tail = False

    def events(self, text: str, *, ended: bool) -> Iterator[bytes]:
        if self._begun and not text and not ended:
            return
        blocks = self._finished(text, ended=ended)
        tail = "" if ended else self._tail()
        if not self._begun:
            yield event(f"{self.name}-{self.turn_id}", blocks)
        elif blocks:
            yield event(f"{self.name}-more-{self.turn_id}", blocks)
        if tail or self._has_tail:
            yield event(f"{self.name}-tail-{self.turn_id}", tail)
        self._begun, self._has_tail = True, bool(tail)

    def _finished(self, text: str, *, ended: bool) -> str:
        return "".join(self.renderer.feed(text)) + (self.renderer.finish() if ended else "")

    def _tail(self) -> str:
        return self.renderer.tail()


class JsonPart(Part):
    """One growing block of code; the document in order comes with the end."""

    _has_text = False

    def _finished(self, text: str, *, ended: bool) -> str:
        if text:
            self.renderer.feed(text if self._has_text else OPENING + text)
            self._has_text = True
        return ""

    def _tail(self) -> str:
        return super()._tail() if self._has_text else ""


def thinking_label(seconds: float | None) -> str:
    if seconds is None:
        return gettext("Thinking…")
    return gettext("Thought for %s s") % (f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}")


class Reader:
    """One answer as one reader sees it grow."""

    def __init__(self, turn_id: int, *, is_json: bool) -> None:
        self.turn_id = turn_id
        self._thinking = Part("thinking", turn_id)
        self._answer = (JsonPart if is_json else Part)("answer", turn_id)
        self._is_json = is_json
        self._label = ""
        self.begun = self._has_thought = False

    def events(self, progress: Progress) -> Iterator[bytes]:
        self.begun = True
        yield from self._thinking.events(progress.reasoning, ended=progress.ended)
        self._has_thought = self._has_thought or bool(progress.reasoning)
        label = thinking_label(progress.thinking_seconds)
        if self._has_thought and label != self._label:
            self._label = label
            yield event(f"thinking-label-{self.turn_id}", escape(label))
        yield from self._answer.events(progress.content, ended=progress.ended)
        if progress.calls and not progress.ended:
            html = render_to_string("playground/calls_growing.html", {"calls": progress.calls})
            yield event(f"calls-{self.turn_id}", html)

    def rendered(self) -> Rendered | None:
        """What its parts are together, once the answer has ended."""
        content, reasoning = self._answer.renderer.whole, self._thinking.renderer.whole
        return None if self._is_json or content is None or reasoning is None else Rendered(content, reasoning)


async def _events_of(followed: Followed, *, language: str, end: End) -> AsyncIterator[bytes]:
    reader = Reader(followed.turn_id, is_json=followed.is_json)
    async for progress in follow(followed.turn_id):
        if progress.is_empty and reader.begun:
            yield KEEP_ALIVE
            continue
        started_at = time.monotonic()
        with translation.override(language):
            update = b"".join(reader.events(progress))
        yield update
        spent = time.monotonic() - started_at
        if not progress.ended and spent > UPDATE_SECONDS * RENDERING_SHARE:
            await asyncio.sleep(spent / RENDERING_SHARE - UPDATE_SECONDS)
    if (whole := reader.rendered()) is not None:
        await off_loop(lambda: keep_whole(followed.turn_id, whole))
    for name, html in (await end(followed.turn_id)).items():
        yield event(f"{name}-{followed.turn_id}", html)


async def events(turns: Sequence[Followed], *, language: str, end: End) -> AsyncIterator[bytes]:
    """`end` renders what stands around an answer once it is finished; it is called once for each."""
    if len(turns) == 1:
        async for update in _events_of(turns[0], language=language, end=end):
            yield update
    else:
        async for update in _merged([_events_of(turn, language=language, end=end) for turn in turns]):
            yield update
    yield event("close", "")


async def _merged(sources: Sequence[AsyncIterator[bytes]]) -> AsyncIterator[bytes]:
    """What any of them gives, as it comes, until all have ended."""
    awaited = {asyncio.ensure_future(_next(source)): source for source in sources}
    try:
        while awaited:
            done, _waiting = await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                source, update = awaited.pop(task), task.result()
                if update is not None:
                    awaited[asyncio.ensure_future(_next(source))] = source
                    yield update
    finally:
        for task in awaited:
            task.cancel()
        await asyncio.gather(*awaited, return_exceptions=True)


async def _next(source: AsyncIterator[bytes]) -> bytes | None:
    return await anext(source, None)
