"""One call from a model server to whoever asked: over HTTP or in process, metered either way.

    call = relay.accept(job, caller=…, ticket=…)
    async with relay.open(job, call=call) as answer:    # its start is in the journal; raises CallError before a byte
        async for data in answer.events(): …            # whole events; raises CallError when it is cut

Whatever happens to the answer, to its reader or to this process's event loop, `Call.finish` runs once, and it
runs before the bytes that end the answer are released.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

import httpx
from django.conf import settings

from billing.models import Outcome
from gateway.admission import Ticket
from gateway.call import Call, RecordLog
from gateway.caller import Caller
from gateway.catalog import Endpoint
from gateway.chat_stream import DONE_EVENT, ChatStream, Chunks, Passing, Write
from gateway.company import COMPANY
from gateway.errors import CallError, UpstreamRefusal, UpstreamTimeout, UpstreamUnavailable, upstream_failure
from gateway.sse import EventTooLarge
from gateway.transport import Exchange, Transport
from gateway.upstreams import Upstream, Upstreams

CLIENT_GONE_STATUS = 499
DRAIN_LIMIT_SECONDS = float(settings.DISCONNECT_DRAIN_SECONDS)
READ_OUT_SECONDS = 1.0
# What a replica says when it cannot serve at the moment; another one may.
RETRIED_STATUSES = frozenset({502, 503})
MAX_ANSWER_BYTES = 256 * 1024 * 1024


class Interrupted(Exception):
    """The upstream call was ended from this side."""


@dataclass(frozen=True, slots=True)
class RelaySettings:
    request_timeout_seconds: float = 600.0
    drain_when_client_leaves: bool = True


@dataclass(slots=True)
class Job:
    """What a call asks of a model server. `body` makes the bytes for the replica that was chosen."""

    model: str
    endpoint: Endpoint
    body: Callable[[Upstream], bytes]
    # In records and scopes: the endpoint, or the dialect it is spoken in (`messages`).
    called: str
    stream: bool = False
    include_usage: bool = False
    # Base64 of pictures beyond what their tokens come to.
    excess_bytes: int = 0


class Relay:
    def __init__(self, *, upstreams: Upstreams, transport: Transport, log: RecordLog, settings: RelaySettings) -> None:
        self.upstreams = upstreams
        self.transport = transport
        self.log = log
        self.settings = settings
        self._reading_out: set[asyncio.Task[None]] = set()

    def accept(self, job: Job, *, caller: Caller, ticket: Ticket) -> Call:
        """The accepted call; its ticket is settled when it finishes. Its start line is in the journal before a model
        server is asked: requests that come along together write theirs at once."""
        call = Call(caller, job.model, job.called, job.stream, self.log, ticket.call_id, ticket.at, ticket.settle)
        call.accept(alone=False)
        return call

    def open(self, job: Job, *, call: Call) -> Answer:
        return Answer(self, job, call)

    def read_out(self, exchange: Exchange) -> None:
        """Read what follows `[DONE]` (the body's terminator) so that the connection can be used again."""
        task = asyncio.create_task(exchange.read_out(READ_OUT_SECONDS))
        self._reading_out.add(task)
        task.add_done_callback(self._reading_out.discard)


class Answer:
    """An upstream call as an async context: entering sends the request, leaving closes and settles.

    Inside, read it in one way: `read()` for the whole body, `pump()` or iteration for a chat stream, `pieces()`
    for raw bytes. What is read whole or raw is ended with `complete()`.
    """

    def __init__(self, relay: Relay, job: Job, call: Call) -> None:
        self.call = call
        self._relay = relay
        self._job = job
        self._upstream: Upstream | None = None
        self._exchange: Exchange | None = None
        self._ended_as: Outcome | None = None
        self._interrupted = False
        self._complete = False
        # Who waits for the upstream at the moment.
        self._task: asyncio.Task[Any] | None = None
        self._drain_timer: asyncio.TimerHandle | None = None

    # -- opening and closing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException as error:
            self._close(error)
            raise
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._close(error)

    async def _open(self) -> None:
        """Ask one replica after another, each once, until one has answered or failed for good."""
        self.call.written()
        tried: set[Upstream] = set()
        failure: CallError | None = None
        while (upstream := self._relay.upstreams.choose(self._job.model, besides=tried)) is not None:
            tried.add(upstream)
            failure = await self._ask(upstream)
            if failure is None:
                return
        raise failure or self._relay.upstreams.nobody_for(self._job.model)

    async def _ask(self, upstream: Upstream) -> CallError | None:
        """Send the request to one replica. Returns the failure after which another replica may be asked."""
        self._take(upstream)
        body = self._job.body(upstream)
        self.call.prompt_bytes = max(0, len(body) - self._job.excess_bytes)
        request = upstream.request(
            self._job.endpoint,
            body,
            request_id=self.call.request_id,
            read_timeout_seconds=self._relay.settings.request_timeout_seconds,
        )
        try:
            exchange = await self._unless_ended(self._relay.transport.ask(request))
        except httpx.HTTPError as error:
            failure = upstream_failure(error)
            upstream.failed(failure.message)
            if isinstance(failure, UpstreamTimeout):
                raise failure from error
            return failure
        self._exchange = exchange
        if exchange.status == 200:
            upstream.succeeded()
            self.call.status = 200
            return None
        refusal = await self._refusal(exchange)
        if exchange.status not in RETRIED_STATUSES:
            upstream.succeeded()
            raise refusal
        upstream.failed(f"{refusal.status}: {refusal.message}"[:500])
        return refusal

    def _take(self, upstream: Upstream) -> None:
        if self._upstream:
            self._upstream.release()
        self._upstream = upstream
        self.call.upstream = upstream.name
        upstream.take()

    async def _refusal(self, exchange: Exchange) -> UpstreamRefusal:
        """The backend's own error. Its body is read here, so that its connection is free."""
        try:
            body = await self._read_whole(exchange)
        finally:
            exchange.close()
            self._exchange = None
        content_type = exchange.header(b"content-type") or b"application/json"
        refusal = UpstreamRefusal(status=exchange.status, raw_body=body, content_type=content_type)
        if retry_after := exchange.header(b"retry-after") or (b"1" if exchange.status in RETRIED_STATUSES else b""):
            refusal.headers = ((b"retry-after", retry_after),)
        return refusal

    def _close(self, error: BaseException | None) -> None:
        """Settle first, then let go of the connection."""
        if self._drain_timer:
            self._drain_timer.cancel()
        self._settle(error)
        if self._upstream:
            self._upstream.release()
            self._upstream = None
        exchange, self._exchange = self._exchange, None
        if exchange and self._complete and not exchange.ended:
            self._relay.read_out(exchange)
        elif exchange:
            exchange.close()

    def _settle(self, error: BaseException | None) -> None:
        call = self.call
        if call.finished:
            return
        outcome = self._ended_as
        if isinstance(error, CallError):
            outcome = outcome or Outcome.ERROR
            call.error_code = error.code or str(error.status)
            # A whole answer's client is told the failure's status; a stream's has had its 200 already.
            call.status = call.status if call.status and self._job.stream else error.status
        elif outcome is None:
            # Cancelled from outside (the server stops), or a fault of ours.
            was_cancelled = error is None or isinstance(error, asyncio.CancelledError | GeneratorExit)
            outcome = Outcome.INTERRUPTED if was_cancelled else Outcome.ERROR
        call.status = call.status or (CLIENT_GONE_STATUS if self._ended_as else 500)
        call.finish(outcome)

    # -- what the other side asks --------------------------------------------------------------

    def client_left(self) -> None:
        """The client's connection is gone: stop the upstream, or read it to its end for the exact count."""
        if self.call.finished or self._ended_as or not self._upstream:
            return
        if self._upstream.kind.stops_with_client or not self._relay.settings.drain_when_client_leaves:
            self._interrupt(Outcome.CLIENT_GONE)
            return
        self._ended_as = Outcome.CLIENT_GONE
        later = asyncio.get_running_loop().call_later
        self._drain_timer = later(DRAIN_LIMIT_SECONDS, self._interrupt, Outcome.CLIENT_GONE)

    def stop(self) -> None:
        """End the upstream call now; the answer so far stands."""
        if not self.call.finished:
            self._interrupt(Outcome.STOPPED)

    def abandon(self) -> None:
        self._settle(RuntimeError("whoever began it failed before entering it"))

    @property
    def request_id(self) -> uuid.UUID:
        """The call's id, which is its usage record's too."""
        return uuid.UUID(self.call.request_id)

    @property
    def client_is_gone(self) -> bool:
        return self._ended_as is Outcome.CLIENT_GONE

    def _interrupt(self, outcome: Outcome) -> None:
        self._ended_as = outcome
        self._interrupted = True
        if self._task:
            self._task.cancel()

    async def _unless_ended[T](self, work: Coroutine[Any, Any, T]) -> T:
        """What the upstream is waited for; Interrupted where this side has ended the call, or does meanwhile."""
        if self._interrupted:
            work.close()
            raise Interrupted
        self._task = task = cast("asyncio.Task[Any]", asyncio.current_task())
        try:
            return await work
        except asyncio.CancelledError:
            if self._ended_here(task):
                raise Interrupted from None
            raise
        finally:
            self._task = None

    def _ended_here(self, task: asyncio.Task[Any]) -> bool:
        """Whether a cancellation was `_interrupt`'s own and nobody else wants the task gone."""
        return self._interrupted and task.uncancel() == 0

    # -- reading -------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """The whole body; the caller makes of it what the client gets, then calls `complete`."""
        assert self._exchange is not None
        self.call.first_byte_at = time.time()
        return await self._read_whole(self._exchange)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes, untouched; the caller calls `complete` before it ends its own answer."""
        assert self._exchange is not None
        try:
            while data := await self._unless_ended(self._exchange.read()):
                self.call.first_byte_at = self.call.first_byte_at or time.time()
                self.call.bytes_out += len(data)
                yield data
        except httpx.HTTPError as error:
            failure = upstream_failure(error)
            self._settle(failure)
            raise failure from error

    def header(self, name: bytes) -> bytes:
        """A header of the backend's answer; empty where it has none."""
        assert self._exchange is not None
        return self._exchange.header(name)

    def complete(self, *, bytes_out: int | None = None, alone: bool = True) -> None:
        """The answer is whole, or ended here: its record is written before the client gets the end of it. Not `alone`,
        that is left to `Call.written`."""
        if bytes_out is not None:
            self.call.bytes_out = bytes_out
        self.call.finish(self._ended_as or Outcome.OK, alone=alone)

    async def _read_whole(self, exchange: Exchange) -> bytes:
        """The body, within the time that a whole answer may take and the size that it may have."""
        # Most answers have come with their head: then there is nothing to wait for.
        if (body := exchange.arrived()) is not None:
            return body
        left_seconds = self.call.started_at + self._relay.settings.request_timeout_seconds - time.time()
        pieces = []
        size = 0
        try:
            async with asyncio.timeout(left_seconds):
                while piece := await exchange.read():
                    pieces.append(piece)
                    size += len(piece)
                    if size > MAX_ANSWER_BYTES:
                        raise UpstreamUnavailable("The model server's answer is too large.")
        except (httpx.HTTPError, TimeoutError) as error:
            raise upstream_failure(error) from error
        return b"".join(pieces)

    async def pump(self, write: Write) -> None:
        """Whole events to a client as they come; `DONE_EVENT` is the caller's to send once this has returned.

        What `write` returns is awaited before more is read. Raises CallError when the answer is cut.
        """
        assert self._exchange is not None
        passing = Passing(self.call, self._stream(), write)
        failure: CallError | None = None
        try:
            with COMPANY.streaming():
                await self._unless_ended(self._exchange.pump(passing))
            self._complete = passing.stream.done
            if (out := passing.stream.end()) and (unsent := passing.pass_on(out)) is not None:
                await unsent
            failure = passing.stream.failure()
        except Interrupted:
            pass
        except (httpx.HTTPError, EventTooLarge) as error:
            failure = upstream_failure(error)
        self._end(failure)

    def _end(self, failure: CallError | None) -> None:
        if failure:
            self._settle(failure)
            raise failure
        self.complete()

    def _stream(self) -> ChatStream:
        assert self._upstream is not None
        renames_model = self._upstream.served_as.get(self.call.model) != self.call.model
        return ChatStream(self.call, renames_model=renames_model, include_usage=self._job.include_usage)

    async def events(self) -> AsyncGenerator[bytes]:
        """Whole events for the client; the closing `[DONE]` comes when the record is in the journal."""
        call = self.call
        assert self._exchange is not None
        stream = self._stream()
        failure: CallError | None = None
        try:
            while not stream.is_over and (data := await self._unless_ended(self._exchange.read())):
                call.first_byte_at = call.first_byte_at or time.time()
                if out := stream.feed(data):
                    call.bytes_out += len(out)
                    yield out
            self._complete = stream.done
            if out := stream.end():
                call.bytes_out += len(out)
                yield out
            failure = stream.failure()
        except Interrupted:
            pass
        except (httpx.HTTPError, EventTooLarge) as error:
            failure = upstream_failure(error)
        self._end(failure)
        if self._ended_as is None:
            yield DONE_EVENT

    async def chunks(self) -> AsyncGenerator[dict[str, Any]]:
        """The same as objects, for a reader in this process."""
        chunks = Chunks()
        async for data in self.events():
            for chunk in chunks.feed(data):
                yield chunk

    __aiter__ = chunks
