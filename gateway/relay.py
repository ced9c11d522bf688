"""One call from a model server to whoever asked: over HTTP or in process, metered either way.

    call = relay.accept(job, caller=…, ticket=…)        # the start line is in the journal
    async with relay.open(job, call=call) as answer:    # raises CallError before the first byte
        async for data in answer.events(): …            # whole events; raises CallError when it is cut

Whatever happens to the answer, to its reader or to this process's event loop, `Call.finish` runs once, and it
runs before the bytes that end the answer are released.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx
import orjson

from billing.models import Outcome
from gateway.admission import Ticket
from gateway.call import Call, RecordLog
from gateway.caller import Caller
from gateway.catalog import Endpoint
from gateway.chat_stream import DONE_EVENT, ChatStream
from gateway.errors import CallError, UpstreamRefusal, UpstreamSaturated, UpstreamTimeout, UpstreamUnavailable
from gateway.sse import EventSplitter, EventTooLarge, event_data
from gateway.transport import Body
from gateway.upstreams import Upstream, Upstreams

CLIENT_GONE_STATUS = 499
DRAIN_LIMIT_SECONDS = 30.0
READ_OUT_SECONDS = 1.0
# What a replica says when it cannot serve at the moment; another one may.
RETRIED_STATUSES = frozenset({502, 503})
MAX_ANSWER_BYTES = 256 * 1024 * 1024
CUT = "The model server ended the stream before the answer was complete."


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
    # What the record and a key's scopes call it: the endpoint, or the dialect it is spoken in (`messages`).
    called: str
    stream: bool = False
    include_usage: bool = False


class Relay:
    def __init__(
        self, *, upstreams: Upstreams, transport: httpx.AsyncBaseTransport, log: RecordLog, settings: RelaySettings
    ) -> None:
        self.upstreams = upstreams
        self.transport = transport
        self.log = log
        self.settings = settings
        self._reading_out: set[asyncio.Task[None]] = set()

    def accept(self, job: Job, *, caller: Caller, ticket: Ticket) -> Call:
        """The accepted call, with its start line in the journal; its ticket is settled when it finishes."""
        call = Call(
            caller=caller,
            model=job.model,
            endpoint=job.called,
            stream=job.stream,
            log=self.log,
            request_id=ticket.call_id,
            on_finish=ticket.settle,
        )
        try:
            call.accept()
        except BaseException:
            ticket.cancel()
            raise
        return call

    def open(self, job: Job, *, call: Call) -> Answer:
        return Answer(self, job, call)

    def read_out(self, response: httpx.Response) -> None:
        """Read what follows `[DONE]` (the body's terminator) so that the connection can be used again."""
        task = asyncio.create_task(_read_out(response))
        self._reading_out.add(task)
        task.add_done_callback(self._reading_out.discard)


class Answer:
    """An upstream call as an async context: entering sends the request, leaving closes and settles.

    Inside, read it in one way: `read()` for the whole body, `events()` or iteration for a chat stream, `pieces()`
    for raw bytes. What is read whole or raw is ended with `complete()`.
    """

    def __init__(self, relay: Relay, job: Job, call: Call) -> None:
        self.call = call
        self._relay = relay
        self._job = job
        self._upstream: Upstream | None = None
        self._response: httpx.Response | None = None
        self._ended_as: Outcome | None = None
        self._interrupted = False
        self._complete = False
        self._opening: asyncio.Task[Any] | None = None
        self._reading: asyncio.Task[Any] | None = None
        self._drain_timer: asyncio.TimerHandle | None = None

    # -- opening and closing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException as error:
            await self._close(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close(error)

    async def _open(self) -> None:
        """Ask one replica after another, each once, until one has answered or failed for good."""
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
        if self._interrupted:
            # Ended before it was begun, or while the replica before this one said no.
            raise Interrupted
        self._take(upstream)
        body = self._job.body(upstream)
        self.call.prompt_bytes = len(body)
        request = upstream.request(
            self._job.endpoint,
            body,
            request_id=self.call.request_id,
            read_timeout_seconds=self._relay.settings.request_timeout_seconds,
        )
        self._opening = _current_task()
        try:
            response = await self._relay.transport.handle_async_request(request)
        except httpx.HTTPError as error:
            upstream.failed()
            failure = _translated(error)
            if isinstance(failure, UpstreamTimeout):
                raise failure from error
            return failure
        except asyncio.CancelledError:
            if self._ended_here(self._opening):
                raise Interrupted from None
            raise
        finally:
            self._opening = None
        self._response = response
        if response.status_code == 200:
            upstream.succeeded()
            self.call.status = 200
            return None
        refusal = await self._refusal(response)
        if response.status_code not in RETRIED_STATUSES:
            upstream.succeeded()
            raise refusal
        upstream.failed()
        return refusal

    def _take(self, upstream: Upstream) -> None:
        if self._upstream:
            self._upstream.release()
        self._upstream = upstream
        self.call.upstream = upstream.name
        upstream.take()

    async def _refusal(self, response: httpx.Response) -> UpstreamRefusal:
        """The backend's own error. Its body is read here, so that its connection is free."""
        try:
            body = await self._read_whole(response)
        finally:
            await response.stream.aclose()  # type: ignore[union-attr]
            self._response = None
        refusal = UpstreamRefusal(
            status=response.status_code,
            raw_body=body,
            content_type=_raw_header(response, b"content-type") or b"application/json",
        )
        if retry_after := _raw_header(response, b"retry-after"):
            refusal.headers = ((b"retry-after", retry_after),)
        return refusal

    async def _close(self, error: BaseException | None) -> None:
        """Settle first: closing may be interrupted, the record must not be."""
        if self._drain_timer:
            self._drain_timer.cancel()
        self._settle(error)
        if self._upstream:
            self._upstream.release()
            self._upstream = None
        if (response := self._response) is None:
            return
        self._response = None
        if self._complete:
            self._relay.read_out(response)
        else:
            await response.stream.aclose()  # type: ignore[union-attr]

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
            cancelled = error is None or isinstance(error, asyncio.CancelledError | GeneratorExit)
            outcome = Outcome.INTERRUPTED if cancelled else Outcome.ERROR
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
        loop = asyncio.get_running_loop()
        self._drain_timer = loop.call_later(DRAIN_LIMIT_SECONDS, self._interrupt, Outcome.CLIENT_GONE)

    def stop(self) -> None:
        """End the upstream call now; the answer so far stands."""
        if not self.call.finished:
            self._interrupt(Outcome.STOPPED)

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
        task = self._opening or self._reading
        if task:
            task.cancel()

    def _ended_here(self, task: asyncio.Task[Any]) -> bool:
        """Whether a cancellation was `_interrupt`'s own and nobody else wants the task gone."""
        return self._interrupted and task.uncancel() == 0

    # -- reading -------------------------------------------------------------------------------

    async def read(self) -> bytes:
        """The whole body; the caller makes of it what the client gets, then calls `complete`."""
        assert self._response is not None
        self.call.first_byte_at = time.time()
        return await self._read_whole(self._response)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes, untouched; the caller calls `complete` before it ends its own answer."""
        try:
            while (data := await self._next()) is not None:
                self.call.first_byte_at = self.call.first_byte_at or time.time()
                self.call.bytes_out += len(data)
                yield data
        except httpx.HTTPError as error:
            failure = _translated(error)
            self._settle(failure)
            raise failure from error

    def header(self, name: bytes) -> bytes | None:
        """A header of the backend's answer."""
        assert self._response is not None
        return _raw_header(self._response, name)

    def complete(self, *, bytes_out: int | None = None) -> None:
        """The answer is whole: its record is written before the client gets the end of it."""
        if bytes_out is not None:
            self.call.bytes_out = bytes_out
        self.call.finish(self._ended_as or Outcome.OK)

    async def _read_whole(self, response: httpx.Response) -> bytes:
        """The body, within the time that a whole answer may take and the size that it may have."""
        # Most answers have come with their head: then there is nothing to wait for.
        if isinstance(response.stream, Body) and (body := response.stream.arrived()) is not None:
            return body
        left_seconds = self.call.started_at + self._relay.settings.request_timeout_seconds - time.time()
        pieces = []
        size = 0
        try:
            async with asyncio.timeout(left_seconds):
                async for piece in response.stream:  # type: ignore[union-attr]
                    pieces.append(piece)
                    size += len(piece)
                    if size > MAX_ANSWER_BYTES:
                        raise UpstreamUnavailable("The model server's answer is too large.")
        except (httpx.HTTPError, TimeoutError) as error:
            raise _translated(error) from error
        return b"".join(pieces)

    async def events(self) -> AsyncGenerator[bytes]:
        """Whole events for the client; the closing `[DONE]` comes when the record is in the journal."""
        call = self.call
        stream = ChatStream(
            call,
            renames_model=self._renames_model(),
            include_usage=self._job.include_usage,
        )
        failure: CallError | None = None
        try:
            while not stream.done and stream.error is None and (data := await self._next()) is not None:
                call.first_byte_at = call.first_byte_at or time.time()
                if out := stream.feed(data):
                    call.bytes_out += len(out)
                    yield out
            self._complete = stream.done
            if out := stream.end():
                call.bytes_out += len(out)
                yield out
            failure = self._failure(stream)
        except Interrupted:
            pass
        except (httpx.HTTPError, EventTooLarge) as error:
            failure = _translated(error)
        if failure:
            self._settle(failure)
            raise failure
        call.finish(self._ended_as or Outcome.OK)
        if self._ended_as is None:
            yield DONE_EVENT

    async def chunks(self) -> AsyncGenerator[dict[str, Any]]:
        """The same as objects, for a reader in this process."""
        splitter = EventSplitter()
        async for data in self.events():
            for event in splitter.feed(data):
                text = event_data(event)
                if text and text != b"[DONE]":
                    yield orjson.loads(text)

    __aiter__ = chunks

    async def _next(self) -> bytes | None:
        """The next bytes of the body, None at its end; Interrupted when this side ended it."""
        assert self._response is not None
        if self._interrupted:
            raise Interrupted
        self._reading = _current_task()
        try:
            return await anext(self._response.stream, None)  # type: ignore[call-overload, no-any-return]
        except asyncio.CancelledError:
            if self._ended_here(self._reading):
                raise Interrupted from None
            raise
        finally:
            self._reading = None

    def _renames_model(self) -> bool:
        return self._upstream is not None and self._upstream.served_as.get(self.call.model) != self.call.model

    def _failure(self, stream: ChatStream) -> CallError | None:
        """How a stream that ended by itself failed, if it did."""
        if stream.error is not None:
            message = stream.error.get("message") if isinstance(stream.error, dict) else stream.error
            return UpstreamUnavailable(str(message or "The model server reported an error."), code="upstream_error")
        if not stream.done and not self.call.finish_reason:
            return UpstreamUnavailable(CUT)
        return None


async def _read_out(response: httpx.Response) -> None:
    try:
        async with asyncio.timeout(READ_OUT_SECONDS):
            async for _ in response.stream:  # type: ignore[union-attr]
                pass
    except (httpx.HTTPError, TimeoutError):
        pass
    finally:
        await response.stream.aclose()  # type: ignore[union-attr]


def _raw_header(response: httpx.Response, name: bytes) -> bytes:
    """The header as the server sent it; httpx would decode it, in whatever encoding it takes it for."""
    return next((value for header, value in response.headers.raw if header.lower() == name), b"")


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def _translated(error: Exception) -> CallError:
    """httpx's failures as ours; each kind is listed in a test."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return UpstreamUnavailable("The model server cannot be reached.")
    if isinstance(error, httpx.PoolTimeout):
        return UpstreamSaturated("The model server takes no more connections.", retry_after_seconds=1)
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return UpstreamTimeout("The model server was silent for too long.")
    if isinstance(error, EventTooLarge):
        return UpstreamUnavailable("The model server sent an event that is too large.")
    return UpstreamUnavailable(CUT)
