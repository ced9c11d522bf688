"""An answer while it is generated. It belongs to the server, not to the tab that asked for it.

`start` runs one task for one assistant turn: it consumes the gateway's stream, keeps the text so
far and writes it to the turn about once a second and at the end. Any number of readers
`follow` it from any process; all of them may leave and the answer is finished all the same. A
reader that comes back reads on, and nothing is ever generated a second time by reading.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from gateway.caller import Caller
from gateway.errors import CallError
from gateway.relay import Answer, Interrupted
from gateway.runtime import runtime
from playground import turn_store
from playground.models import Turn
from playground.tool_calls import Call, ToolCalls

logger = logging.getLogger(__name__)

# A stop asked for in another process, and a turn deleted meanwhile, are noticed this fast.
LOOK_SECONDS = 0.5
SAVE_SECONDS = 1.0
# Between two updates to one reader; longer where rendering is slow (see the stream view).
UPDATE_SECONDS = 0.1
KEEP_ALIVE_SECONDS = 15.0
# A living process has saved its turns again by then, SQLite's queue of writers included.
RENEWED_WITHIN_SECONDS = 4.0

# asyncio keeps weak references to tasks only; this is also how a reader finds the live text.
_running: dict[int, Generation] = {}
_sweep: asyncio.Task[None] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What a reader has not seen yet. Nothing of it and not ended: nothing came for a while.

    `calls` are all there are, given anew whenever one of them has grown.
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    thinking_seconds: float | None = None
    ended: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.content or self.reasoning or self.calls or self.ended)


@dataclass(frozen=True, slots=True)
class Seen:
    """How much of an answer a reader has had: pieces of its texts, and how often its calls had grown."""

    content: int = 0
    reasoning: int = 0
    calls: int = 0


class Generation:
    """One assistant turn being filled."""

    def __init__(self, *, turn_id: int, caller: Caller, body: dict[str, Any]) -> None:
        self.turn_id = turn_id
        self.caller = caller
        self.body = body
        self.state = Turn.State.STREAMING
        self.request_id: uuid.UUID | None = None
        self.error: dict[str, Any] | None = None
        self.finish_reason = ""
        self.thinking_seconds: float | None = None
        self.changed = asyncio.Event()
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls = ToolCalls()
        self._calls_grown = 0
        self._thinking_since: float | None = None
        self._answer: Answer | None = None
        self._stopping = False
        self._saved_pieces = 0
        # Not the request's context: its database thread goes away with the request.
        self.task = asyncio.get_running_loop().create_task(self._run(), context=contextvars.Context())

    # -- read ----------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self.state != Turn.State.STREAMING

    def is_stopping(self) -> bool:
        """Whether somebody has asked for the end; it may change while anything is awaited."""
        return self._stopping

    def since(self, seen: Seen) -> tuple[Progress, Seen]:
        """What a reader lacks who has seen that much, and how much there is now."""
        progress = Progress(
            content="".join(self._content[seen.content :]),
            reasoning="".join(self._reasoning[seen.reasoning :]),
            calls=tuple(self._calls.listed()) if self._calls_grown > seen.calls else (),
            thinking_seconds=self.thinking_seconds,
            ended=self.ended,
        )
        return progress, Seen(len(self._content), len(self._reasoning), self._calls_grown)

    # -- stop ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the call upstream; what has come stays."""
        if self._stopping or self.ended:
            return
        self._stopping = True
        if self._answer is not None:
            self._answer.stop()

    def interrupt(self) -> None:
        """The server goes down: keep what has come and say that the rest is missing."""
        self.task.cancel()

    # -- run -----------------------------------------------------------------------------------

    async def _run(self) -> None:
        keeper = asyncio.create_task(self._keep())
        state, self.error = Turn.State.FAILED, _problem("internal")
        try:
            await self._consume()
            state, self.error = (Turn.State.STOPPED if self._stopping else Turn.State.DONE), None
        except CallError as error:
            self.error = {"status": error.status, "message": error.message, "code": error.code}
        except asyncio.CancelledError:
            # Only a server that goes down cancels: what has come is kept, and said to be incomplete.
            self.error = _problem("interrupted")
        except Exception:
            # The edge of the task: whatever happened, the turn must not stay "streaming".
            logger.exception("generation of turn %s failed", self.turn_id)
        finally:
            keeper.cancel()
            await self._end(state)

    async def _consume(self) -> None:
        if self.is_stopping():
            return
        answer = self._answer = await runtime().chat(caller=self.caller, body=self.body)
        self.body = {}  # it may hold megabytes of pictures
        self.request_id = answer.request_id
        if self.is_stopping():
            # Asked for while the gates were passed; entering gives back what admission holds.
            answer.stop()
        try:
            async with answer:
                async for chunk in answer:
                    self._take(chunk)
        except Interrupted:
            # Stopped before the backend had answered at all.
            if not self._stopping:
                raise

    def _take(self, chunk: dict[str, Any]) -> None:
        choice = (chunk.get("choices") or [{}])[0]
        delta = choice.get("delta") or {}
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        content, reasoning = delta.get("content"), delta.get("reasoning")
        if reasoning:
            self._thinking_since = self._thinking_since or time.monotonic()
            self._reasoning.append(reasoning)
        if content:
            self._end_thinking()
            self._content.append(content)
        called = self._calls.add(delta.get("tool_calls"))
        if called:
            self._end_thinking()
            self._calls_grown += 1
        if content or reasoning or called:
            self._announce()

    def _end_thinking(self) -> None:
        if self._thinking_since is not None and self.thinking_seconds is None:
            self.thinking_seconds = round(time.monotonic() - self._thinking_since, 1)

    def _announce(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    # -- keep ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Write what has come, prove that somebody fills the turn, see whether a stop was asked for."""
        saved_at = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if time.monotonic() - saved_at >= SAVE_SECONDS:
                    await turn_store.save(turn_id=self.turn_id, **self._unsaved())
                    saved_at = time.monotonic()
                wanted = await turn_store.is_wanted(turn_id=self.turn_id)
            except Exception:
                # The database is away: the answer goes on, the next look tries again.
                logger.exception("turn %s could not be saved", self.turn_id)
                continue
            if not wanted:
                self.stop()

    def _unsaved(self) -> dict[str, Any]:
        pieces = len(self._content) + len(self._reasoning) + self._calls_grown
        if pieces == self._saved_pieces:
            return {}
        self._saved_pieces = pieces
        return self._texts() | {"request_id": self.request_id, "thinking_seconds": self.thinking_seconds}

    def _texts(self) -> dict[str, Any]:
        # PostgreSQL's text has no NUL.
        return {
            "content": "".join(self._content).replace("\x00", ""),
            "reasoning": "".join(self._reasoning).replace("\x00", ""),
            "tool_calls": self._calls.listed(),
        }

    async def _end(self, state: Turn.State) -> None:
        """Readers hear of the end only when the turn says so too."""
        self._end_thinking()
        try:
            await asyncio.shield(asyncio.ensure_future(self._save_end(state)))
        finally:
            self.state = state
            _running.pop(self.turn_id, None)
            self._announce()

    async def _save_end(self, state: Turn.State) -> None:
        await turn_store.save(
            turn_id=self.turn_id,
            state=state,
            request_id=self.request_id,
            thinking_seconds=self.thinking_seconds,
            finish_reason=self.finish_reason[:32],
            error=self.error,
            **self._texts(),
        )


def _problem(code: str) -> dict[str, Any]:
    return {"status": 500, "message": "", "code": code}


def start(*, turn_id: int, caller: Caller, body: dict[str, Any]) -> Generation:
    """Begin to fill a turn. Called from within the web process's event loop."""
    generation = _running[turn_id] = Generation(turn_id=turn_id, caller=caller, body=body)
    return generation


async def stop(*, turn_id: int) -> None:
    """Stop a turn whichever process fills it."""
    generation = _running.get(turn_id)
    if generation is not None:
        generation.stop()
    else:
        await turn_store.request_stop(turn_id=turn_id)


def start_up() -> None:
    """Once the event loop serves: after a crash nobody should wait until its answers look old."""
    global _sweep
    _sweep = asyncio.get_running_loop().create_task(_close_left_behind())


async def shut_down() -> None:
    """Before the event loop ends: cut what still runs and keep its text."""
    if _sweep is not None:
        _sweep.cancel()
    generations = list(_running.values())
    for generation in generations:
        generation.interrupt()
    await asyncio.gather(*(generation.task for generation in generations), return_exceptions=True)


async def follow(turn_id: int) -> AsyncIterator[Progress]:
    """All that has come so far, then what comes, until `ended`. Leaving it changes nothing."""
    generation = _running.get(turn_id)
    source = _follow_here(generation) if generation is not None else _follow_elsewhere(turn_id)
    async for progress in source:
        yield progress


async def _follow_here(generation: Generation) -> AsyncIterator[Progress]:
    seen = Seen()
    while True:
        changed = generation.changed
        progress, seen = generation.since(seen)
        yield progress
        if progress.ended:
            return
        if not progress.is_empty:
            # What comes within this pause goes out together; the very first piece has not waited.
            await asyncio.sleep(UPDATE_SECONDS)
        while not changed.is_set():
            try:
                await asyncio.wait_for(changed.wait(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                yield Progress()


async def _follow_elsewhere(turn_id: int) -> AsyncIterator[Progress]:
    """Another process fills the turn, or did once: read what it saves."""
    content = reasoning = 0
    calls: list[Call] = []
    spoken_at = 0.0
    while True:
        turn = await turn_store.read(turn_id=turn_id)
        if turn is None:
            yield Progress(ended=True)
            return
        progress = Progress(
            content=turn.content[content:],
            reasoning=turn.reasoning[reasoning:],
            calls=tuple(turn.tool_calls) if turn.tool_calls != calls else (),
            thinking_seconds=turn.thinking_seconds,
            ended=not turn.is_streaming,
        )
        content, reasoning, calls = len(turn.content), len(turn.reasoning), turn.tool_calls
        if not progress.is_empty or time.monotonic() - spoken_at > KEEP_ALIVE_SECONDS:
            spoken_at = time.monotonic()
            yield progress
        if progress.ended:
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _close_left_behind() -> None:
    """Turns that a killed process left streaming: whoever still fills one renews it within this pause."""
    started_at = timezone.now()
    await asyncio.sleep(RENEWED_WITHIN_SECONDS)
    await turn_store.close_untouched(since=started_at)
