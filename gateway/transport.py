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
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httptools
import httpx

from gateway.connection import HIGH_WATER_BYTES, Connection, Reader, StaleConnection

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
        self._arriving: list[bytes] = []

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
                if len(body) >= HIGH_WATER_BYTES:
                    await connection.send(head)
                    await connection.send(body)
                elif (unsent := connection.write(head + body)) is not None:
                    await unsent
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
        now = connection.loop.time()
        if connection.reusable and len(idle) < MAX_IDLE_CONNECTIONS:
            connection.idle_since = now
            idle.append(connection)
        else:
            self.discard(connection)
        # The last one put back is the first one taken: those that a busy time left over lie at the other end.
        while idle and now - idle[0].idle_since > IDLE_SECONDS:
            self.discard(idle.pop(0))

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
                    lambda: Connection(loop, self._arriving), host, port, ssl=self.tls() if scheme == "https" else None
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
