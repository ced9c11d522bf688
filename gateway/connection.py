"""One connection to a model server: bytes in, an answer's head and body out, with time-outs and back-pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Protocol, cast

import httptools
import httpx

MAX_HEAD_BYTES = 65_536
# Above this much unread body the socket is not read further until the reader has caught up.
HIGH_WATER_BYTES = 262_144
# After this much at once everybody else has their turn: libuv alone would read from one fast server 32 times as much.
TURN_BYTES = 131_072


class Reader(Protocol):
    """Takes a body as it comes, without a task of its own in between."""

    done: bool

    def feed(self, data: bytes) -> Awaitable[None] | None:
        """What is returned is awaited before more is fed; errors are raised by `Exchange.pump`."""


class StaleConnection(httpx.RemoteProtocolError):
    """A pooled connection turned out to be closed before a byte of the answer came."""


class Connection(asyncio.Protocol):
    """One socket: at most one request on its way, its answer's head as a future, its body as a queue.

    `arriving`, the parts of a body that one read of a socket brings, is shared by the connections of one loop: each
    empties it before another's bytes are read, and what all use at every read stays in the core's cache.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, arriving: list[bytes] | None = None) -> None:
        self.loop = loop
        self._arriving: list[bytes] = [] if arriving is None else arriving
        # The parser's callback.
        self.on_body = self._arriving.append
        self.transport: asyncio.Transport | None = None
        self.closed = False
        self.reused = False
        self.idle_since = 0.0
        self.bodiless = False
        self.parser = httptools.HttpResponseParser(self)
        self._can_write: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._deadline = 0.0
        self.begin()

    def begin(self) -> None:
        """Make ready for the next request."""
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.head: asyncio.Future[None] = self.loop.create_future()
        self.complete = False
        self._keep_alive = False
        self.error: Exception | None = None
        self._head_bytes = 0
        self._until_eof = True
        self._pieces: list[bytes] = []
        self._buffered = 0
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._reader: Reader | None = None
        self._unread: Awaitable[None] | None = None
        self._read_seconds = 0.0

    # -- asyncio's side ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.complete:
            # Nobody asked for this: what comes next here can be nobody's answer.
            self._keep_alive = False
            return
        arriving = self._arriving
        # Nobody's bytes are another's, whatever became of the read before.
        arriving.clear()
        try:
            if not self.status:
                self._head_bytes += len(data)
            self.parser.feed_data(data)
            if not self.status and self._head_bytes > MAX_HEAD_BYTES:
                raise httpx.RemoteProtocolError("the answer's head is too large")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(httpx.RemoteProtocolError(str(error)))
        except httpx.RemoteProtocolError as error:
            self._fail(error)
        if arriving:
            body = arriving[0] if len(arriving) == 1 else b"".join(arriving)
            arriving.clear()
            if self._reader is not None:
                self._hand_over(self._reader, body)
            else:
                self._keep(body)
        else:
            self._wake()
        if len(data) >= TURN_BYTES and not self._paused and self.transport and not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self._paused and self.transport and not self.transport.is_closing():
            self.transport.resume_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        # It refers to this one: without it nothing is left for the collector of cycles to find.
        del self.parser
        if self._can_write and not self._can_write.done():
            self._can_write.set_result(None)
        if self.complete:
            return
        if self.status and self._until_eof and error is None:
            self.complete = True
            self._wake()
        elif self._head_bytes or not self.reused:
            self._fail(httpx.RemoteProtocolError("the connection closed before the answer was complete"))
        else:
            self._fail(StaleConnection("the pooled connection was closed"))

    def pause_writing(self) -> None:
        self._can_write = self.loop.create_future()

    def resume_writing(self) -> None:
        if self._can_write and not self._can_write.done():
            self._can_write.set_result(None)
        self._can_write = None

    # -- the parser's side ---------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.complete:
            raise httpx.RemoteProtocolError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower()):
            self._until_eof = False
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self.parser.get_status_code()
        if status < 200:
            self.headers.clear()
            self._until_eof = True
            return
        self.status = status
        if status in (204, 304):
            self._until_eof = False
        if self.bodiless:
            # The parser cannot know that HEAD was asked: it would wait for the body that the head speaks of.
            self.complete = True
        if not self.head.done():
            self.head.set_result(None)

    def on_message_complete(self) -> None:
        if self.status:
            self.complete = True
            # Only here does the parser still know it.
            self._keep_alive = self.parser.should_keep_alive()

    # -- the relay's side ----------------------------------------------------------------------

    def write(self, data: bytes) -> Awaitable[None] | None:
        """Send at once; what is returned waits for a server that cannot take it at once."""
        assert self.transport is not None
        self.transport.write(data)
        return self._can_write

    async def send(self, data: bytes) -> None:
        if (unsent := self.write(data)) is not None:
            await unsent

    async def read(self, timeout_seconds: float) -> bytes:
        """Everything that has come since the last read; waits for something; empty at the end."""
        while not self._pieces:
            if self.error:
                raise self.error
            if self.complete:
                return b""
            await self._wait(timeout_seconds)
        return self.take()

    async def pump(self, reader: Reader, timeout_seconds: float) -> None:
        """Feed what comes to the reader, most of it straight from the socket, until it or the body is done."""
        while True:
            if self._pieces and (unread := reader.feed(self.take())) is not None:
                await unread
            if reader.done:
                return
            if self._pieces:
                continue
            if self.error:
                raise self.error
            if self.complete:
                return
            self._reader, self._read_seconds = reader, timeout_seconds
            try:
                await self._wait(timeout_seconds)
            finally:
                self._reader = None
            if (unread := self._unread) is not None:
                self._unread = None
                await unread

    async def _wait(self, timeout_seconds: float) -> None:
        self._waiter = self.loop.create_future()
        self.arm(timeout_seconds)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._deadline = 0.0

    def _hand_over(self, reader: Reader, body: bytes) -> None:
        try:
            unread = reader.feed(body)
            if unread is None and self.error is None and not (reader.done or self.complete):
                self._deadline = self.loop.time() + self._read_seconds
                return
            self._unread = unread
        except Exception as error:  # noqa: BLE001 -- whatever it is, it belongs to whoever awaits the pump
            self.error = error
        # What comes from now on waits for the pump.
        self._reader = None
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def _keep(self, body: bytes) -> None:
        self._pieces.append(body)
        self._buffered += len(body)
        if self._buffered > HIGH_WATER_BYTES and not self._paused and self.transport:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def take(self) -> bytes:
        """What has come and was not read yet."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._buffered = 0
        if self._paused and self.transport:
            self._paused = False
            if not self.closed:
                self.transport.resume_reading()
        return data

    def arm(self, timeout_seconds: float) -> None:
        """Fail with ReadTimeout unless data comes first. One timer a connection: it looks again when it was early."""
        self._deadline = deadline = self.loop.time() + timeout_seconds
        if self._timer is None or self._timer_at > deadline:
            if self._timer:
                self._timer.cancel()
            self._set_timer(deadline)

    def _set_timer(self, at: float) -> None:
        self._timer_at = at
        self._timer = self.loop.call_at(at, self._on_timer)

    def disarm(self) -> None:
        self._deadline = 0.0

    def abort(self) -> None:
        self.closed = True
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self.transport:
            self.transport.abort()

    @property
    def reusable(self) -> bool:
        return self.complete and self._keep_alive and not (self.closed or self.error or self._paused)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._deadline:
            return
        if self._deadline > self.loop.time():
            self._set_timer(self._deadline)
        else:
            self._fail(httpx.ReadTimeout("the server was silent for too long"))
            self._wake()

    def _fail(self, error: Exception) -> None:
        if self.complete:
            # The answer is whole; only the connection is of no more use.
            self._keep_alive = False
            return
        self.error = self.error or error
        if not self.head.done():
            self.head.set_exception(self.error)
            # A call that was cancelled meanwhile never asks; asyncio must not complain about that.
            self.head.exception()
        if self._can_write and not self._can_write.done():
            # Whoever waits to send the rest of a request learns of it too.
            self._can_write.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done() and (self._pieces or self.complete or self.error):
            self._waiter.set_result(None)
