"""The transport for servers that teams named: checked addresses, and request bodies passed on as they come."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx

from gateway.connection import Connection
from gateway.reachable import checked_addresses
from gateway.ssrf import Network
from gateway.transport import Body, Exchange, Origin, Transport, wire_head

CONNECT_SECONDS = 10.0
READ_SECONDS = 600.0


class GuardedTransport(Transport):
    """Raises what Transport raises, and AddressRefused."""

    def __init__(self, *, allowed: Sequence[Network], ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__(ssl_context=ssl_context)
        self._allowed = allowed

    async def connect(self, origin: Origin, timeout_seconds: float) -> Connection:
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        tls: dict[str, Any] = {"ssl": self.tls(), "server_hostname": host} if scheme == "https" else {}
        error: OSError | None = None
        try:
            async with asyncio.timeout(timeout_seconds):
                for address in await checked_addresses(host, port, allowed=self._allowed):
                    try:
                        _, connection = await loop.create_connection(lambda: Connection(loop), address, port, **tls)
                    except OSError as failure:
                        error = failure
                    else:
                        self.open_connections.add(connection)
                        return connection
        except TimeoutError as failure:
            raise httpx.ConnectTimeout(f"no connection to {host}:{port} within {timeout_seconds:g} s") from failure
        except OSError as failure:
            error = failure
        raise httpx.ConnectError(f"no connection to {host}:{port}: {error}") from error

    async def upload(self, request: httpx.Request, pieces: AsyncIterator[bytes]) -> httpx.Response:
        """Send a body of any length piece by piece, on a connection of its own: nothing of it is kept for a retry.

        The answer may begin before the body has ended. What `pieces` raises ends the call.
        """
        url, timeout = request.url, request.extensions.get("timeout", {})
        origin = (url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80))
        read_seconds = timeout.get("read") or READ_SECONDS
        connection = await self.connect(origin, timeout.get("connect") or CONNECT_SECONDS)
        connection.bodiless = request.method == "HEAD"
        chunked = "content-length" not in request.headers
        if chunked:
            request.headers["transfer-encoding"] = "chunked"
        sending = asyncio.ensure_future(_send(connection, wire_head(request), pieces, chunked, read_seconds))
        try:
            await asyncio.wait({sending, connection.head}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            await connection.head
            connection.disarm()
        except BaseException:
            sending.cancel()
            self.discard(connection)
            raise
        body = UploadedBody(Exchange(self, origin, connection, read_seconds), sending)
        return httpx.Response(connection.status, headers=connection.headers, stream=body)


class UploadedBody(Body):
    """The answer to a body that may still be on its way; closing ends both."""

    def __init__(self, exchange: Exchange, sending: asyncio.Future[None]) -> None:
        super().__init__(exchange)
        self._sending = sending

    async def aclose(self) -> None:
        if not self._sending.done():
            self._sending.cancel()
            # Half a request is on it.
            self.exchange.abort()
        # Its failure is the client's leaving or the connection's end, which the reader sees for itself.
        await asyncio.gather(self._sending, return_exceptions=True)
        await super().aclose()


async def _send(
    connection: Connection, head: bytes, pieces: AsyncIterator[bytes], chunked: bool, read_seconds: float
) -> None:
    connection.arm(read_seconds)
    await connection.send(head)
    async for piece in pieces:
        if connection.closed or connection.error or connection.complete:
            return
        # Silence is counted from the last thing either side said.
        connection.arm(read_seconds)
        await connection.send(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
    if chunked and not connection.closed:
        await connection.send(b"0\r\n\r\n")
