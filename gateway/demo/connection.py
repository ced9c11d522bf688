"""One request's side of ASGI: its body, its answer, and whether its client is still there."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

type Message = MutableMapping[str, Any]
type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]


# Key in the ASGI scope by which our server tells that the client's side has ended.
CLIENT_GONE = "gateway.demo.client_gone"


class ClientGone(Exception):
    """The client closed the connection before its answer was whole."""


class Connection:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._scope, self._receive, self._send = scope, receive, send
        self._departure: asyncio.Task[None] | None = None

    def header(self, name: str) -> str:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self._headers if key == wanted), "")

    async def body(self) -> bytes:
        parts = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)

    async def answer(self, status: int, document: object) -> None:
        body = orjson.dumps(document)
        await self.start(status, b"application/json", length=len(body))
        await self._send({"type": "http.response.body", "body": body})

    async def start_stream(self) -> None:
        await self.start(200, b"text/event-stream; charset=utf-8")

    async def write(self, data: bytes, *, last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": not last})

    async def start(self, status: int, content_type: bytes, *, length: int | None = None) -> None:
        headers = [(b"content-type", content_type)]
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def watch(self) -> None:
        """Begins to notice the client's leaving; the body has to be read by then."""
        self._departure = asyncio.create_task(self._until_gone())

    def unwatch(self) -> None:
        if self._departure is not None:
            self._departure.cancel()

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def pause_until(self, moment: float) -> None:
        """Waits for the loop's clock to reach the moment. Raises `ClientGone` at once."""
        if self._departure is None:
            raise RuntimeError("pause_until() needs watch()")
        loop = asyncio.get_running_loop()
        delay = moment - loop.time()
        if delay > 0.25:
            await asyncio.wait({self._departure}, timeout=delay)
        else:
            await asyncio.sleep(max(delay, 0))
        if delay > 0:
            # The loop runs timers before it looks at its sockets: one turn more, and a
            # client that left meanwhile is known before anything is sent to it.
            await asyncio.sleep(0)
        if self._departure.done() or CLIENT_GONE in self._scope:
            raise ClientGone
