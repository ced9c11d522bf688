"""The HTTP/1.1 client under the relay, over httptools: `Transport.ask` for the relay, httpx's transport interface
for everybody else.

httpx's own engine costs a relay most of its speed, its request and response objects a good part of the rest
(docs/performance.md has the figures). This one does what a relay needs and no more: pooled keep-alive connections,
TLS, time-outs on connecting and on silence, back-pressure, bounded heads. It raises httpx's exceptions, and every
answer from it must be closed; closing one that was not read to its end closes its connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable
from typing import Any, NamedTuple, Protocol, cast

import httptools
import httpx

MAX_HEAD_BYTES = 65_536
# Above this much unread body the socket is not read further until the reader has caught up.
HIGH_WATER_BYTES = 262_144
MAX_IDLE_CONNECTIONS = 512
# Servers commonly close idle connections after 5 s (uvicorn) to 75 s (nginx).
IDLE_SECONDS = 4.0

type Origin = tuple[str, str, int]


class WireRequest(NamedTuple):
    """A request as it goes out: `head` ends with its blank line and says the length of `body`."""

    origin: Origin
    head: bytes
    body: bytes
    connect_seconds: float
    read_seconds: float
    bodiless: bool = False


class Reader(Protocol):
    """Takes a body as it comes, without a task of its own in between."""

    done: bool

    def feed(self, data: bytes) -> Awaitable[None] | None:
        """What is returned is awaited before more is fed; errors are raised by `Exchange.pump`."""


class StaleConnection(httpx.RemoteProtocolError):
    """A pooled connection turned out to be closed before a byte of the answer came."""


class Connection(asyncio.Protocol):
    """One socket: at most one request on its way, its answer's head as a future, its body as a queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
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
        self._pieces: deque[bytes] = deque()
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
        if self._reader is not None and self._pieces:
            self._hand_over(self._reader)
        else:
            self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
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

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._buffered += len(body)
        if self._buffered > HIGH_WATER_BYTES and not self._paused and self.transport:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.status:
            self.complete = True
            # Only here does the parser still know it.
            self._keep_alive = self.parser.should_keep_alive()

    # -- the relay's side ----------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)
        if self._can_write:
            await self._can_write

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

    def _hand_over(self, reader: Reader) -> None:
        try:
            self._unread = reader.feed(self.take())
        except Exception as error:  # noqa: BLE001 -- whatever it is, it belongs to whoever awaits the pump
            self.error = error
        if self._unread is None and self.error is None and not reader.done and not self.complete:
            self._deadline = self.loop.time() + self._read_seconds
            return
        # What comes from now on waits for the pump.
        self._reader = None
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self) -> bytes:
        """What has come and was not read yet."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces.popleft() if len(pieces) == 1 else b"".join(pieces)
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


class Exchange:
    """A request that was sent and the head of its answer; the body is read from here. To be closed."""

    __slots__ = ("_connection", "_origin", "_pool", "_read_seconds", "headers", "status")

    def __init__(self, pool: Transport, origin: Origin, connection: Connection, read_seconds: float) -> None:
        self.status = connection.status
        self.headers = connection.headers
        self._pool = pool
        self._origin = origin
        self._connection: Connection | None = connection
        self._read_seconds = read_seconds

    def header(self, name: bytes) -> bytes:
        """A header as the server sent it, its name in lower case; empty where it is not."""
        return next((value for header, value in self.headers if header == name), b"")

    def arrived(self) -> bytes | None:
        """The whole body where it is there already, without waiting; None where it is not."""
        connection = self._connection
        return connection.take() if connection is not None and connection.complete and not connection.error else None

    async def read(self) -> bytes:
        """What has come since the last read, waiting for something; empty at the end. Raises httpx's errors."""
        return await self._connection.read(self._read_seconds) if self._connection is not None else b""

    async def pump(self, reader: Reader) -> None:
        """Feed the reader until it is done or the body has ended. Raises httpx's errors, and the reader's."""
        if self._connection is not None:
            await self._connection.pump(reader, self._read_seconds)

    @property
    def ended(self) -> bool:
        return self._connection is None or self._connection.complete

    async def read_out(self, seconds: float) -> None:
        """Read what is left, if it comes in time, so that the connection can be used again; then close."""
        try:
            async with asyncio.timeout(seconds):
                while await self.read():
                    pass
        except (httpx.HTTPError, TimeoutError):
            pass
        finally:
            self.close()

    def abort(self) -> None:
        """Of no more use to anybody, whatever is still under way on it."""
        if self._connection is not None:
            self._connection.abort()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(self._origin, connection)


class Body(httpx.AsyncByteStream):
    """An answer's body for httpx. Ends with an httpx error when the answer was cut."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if data := await self.exchange.read():
            return data
        raise StopAsyncIteration

    async def aclose(self) -> None:
        self.exchange.close()


class Transport(httpx.AsyncBaseTransport):
    """Keep-alive pools by origin. `request.extensions["timeout"]` takes httpx's `connect` and `read` seconds."""

    def __init__(self, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context
        self._idle: dict[Origin, list[Connection]] = {}
        self.open_connections: set[Connection] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        timeout: dict[str, Any] = request.extensions.get("timeout", {})
        exchange = await self.ask(
            WireRequest(
                origin,
                wire_head(request),
                await _wire_body(request),
                connect_seconds=timeout.get("connect") or 10.0,
                read_seconds=timeout.get("read") or 600.0,
                bodiless=request.method == "HEAD",
            )
        )
        return httpx.Response(exchange.status, headers=exchange.headers, stream=Body(exchange))

    async def ask(self, request: WireRequest) -> Exchange:
        """Send a request and wait for the head of its answer."""
        origin, head, body, connect_seconds, read_seconds, bodiless = request
        connection = self._take(origin)
        while True:
            connection = connection or await self.connect(origin, connect_seconds)
            try:
                connection.bodiless = bodiless
                connection.arm(read_seconds)
                if len(body) < HIGH_WATER_BYTES:
                    await connection.send(head + body)
                else:
                    await connection.send(head)
                    await connection.send(body)
                await connection.head
                connection.disarm()
            except StaleConnection:
                # Once, and on a fresh one: the server may have closed it because of this very request.
                self.discard(connection)
                connection = None
                continue
            except BaseException:
                self.discard(connection)
                raise
            return Exchange(self, origin, connection, read_seconds)

    def release(self, origin: Origin, connection: Connection) -> None:
        idle = self._idle.setdefault(origin, [])
        if connection.reusable and len(idle) < MAX_IDLE_CONNECTIONS:
            connection.idle_since = connection.loop.time()
            idle.append(connection)
        else:
            self.discard(connection)

    async def aclose(self) -> None:
        for connection in list(self.open_connections):
            self.discard(connection)
        self._idle.clear()

    def _take(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.reusable or connection.loop.time() - connection.idle_since > IDLE_SECONDS:
                self.discard(connection)
                continue
            if connection.bodiless:
                # It still waits for the body that the last head spoke of.
                connection.parser = httptools.HttpResponseParser(connection)
            connection.begin()
            connection.reused = True
            return connection
        return None

    async def connect(self, origin: Origin, timeout_seconds: float) -> Connection:
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_seconds):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop), host, port, ssl=self.tls() if scheme == "https" else None
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(f"no connection to {host}:{port} within {timeout_seconds:g} s") from error
        except (OSError, ssl.SSLError) as error:
            raise httpx.ConnectError(f"no connection to {host}:{port}: {error}") from error
        self.open_connections.add(connection)
        return connection

    def discard(self, connection: Connection) -> None:
        self.open_connections.discard(connection)
        connection.abort()

    def tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
        return self._ssl_context


def wire_head(request: httpx.Request) -> bytes:
    """`request.extensions["target"]` is sent as it is; httpx would tidy up what a URL holds."""
    target = request.extensions.get("target") or request.url.raw_path
    lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), target)]
    lines += [b"%s: %s" % (name, value) for name, value in request.headers.raw]
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


async def _wire_body(request: httpx.Request) -> bytes:
    """The whole body; every request of the gateway carries a content-length."""
    stream = request.stream
    if isinstance(stream, httpx.ByteStream):
        return b"".join(stream)
    assert isinstance(stream, httpx.AsyncByteStream)
    return b"".join([chunk async for chunk in stream])
