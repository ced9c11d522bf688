"""The server: one thread with its own event loop, HTTP/1.1 read by hand, whatever a reply says written back."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

type Reply = Callable[[Received, Wire], Awaitable[None]]


class Hangup(Exception):
    """The other side closed its connection."""


@dataclass(frozen=True, slots=True)
class Received:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """The socket under one request, for a reply to write on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, *pieces: bytes) -> None:
        """Each piece is a write of its own, so it usually arrives as a packet of its own."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    def write(self, data: bytes) -> None:
        """Without waiting for the reader to take it."""
        self._writer.write(data)

    @property
    def unsent_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    async def until_hangup(self) -> None:
        """Returns once the gateway has closed the connection."""
        with suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self._writer.wait_closed()

    def reset(self) -> None:
        """Close with a TCP reset instead of an orderly end."""
        raw: socket.socket = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


class Gate:
    """A point at which a reply waits until the test lets it go on; `reached` says that it waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._opened = asyncio.Event()
        self.reached = threading.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self._opened.wait()

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._opened.set)


class FakeUpstream:
    """`received` holds every request but those for `/models`; `hangups` the requests whose connection the other side
    closed while a reply was being written or waited."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.models: list[dict[str, Any]] = []
        self.received: list[Received] = []
        self.hangups: list[Received] = []
        self.accepted = 0
        self.open_connections = 0
        self._tls = tls
        self._replies: deque[Reply] = deque()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake upstream", daemon=True)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    def then(self, *replies: Reply) -> None:
        """What to do with the next requests, in their order of arrival."""
        self._replies.extend(replies)

    def gate(self) -> Gate:
        return Gate(self._loop)

    def reset(self) -> None:
        """Forget everything a test asked for or caused."""
        self._replies.clear()
        self.received.clear()
        self.hangups.clear()

    def start(self) -> None:
        self._thread.start()
        self._run(self._listen())

    def stop(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, limit=2**24)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        self.open_connections += 1
        number = self.accepted
        wire = Wire(reader, writer)
        try:
            while not writer.is_closing():
                request = await _read_request(reader, number)
                await self._reply(request, wire)
        except (Hangup, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self.open_connections -= 1
            writer.transport.abort()
            self._tasks.discard(task)

    async def _reply(self, request: Received, wire: Wire) -> None:
        if request.path.endswith("/models"):
            await wire.send(_json_answer({"object": "list", "data": self.models}))
            return
        self.received.append(request)
        if not self._replies:
            await wire.send(_json_answer({"error": {"message": "the test expected no request here"}}, status=599))
            return
        try:
            await self._replies.popleft()(request, wire)
        except (ConnectionError, Hangup):
            self.hangups.append(request)
            raise


def _json_answer(document: Any, *, status: int = 200) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d Said\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        status, len(body), body,
    )  # fmt: skip


async def _read_request(reader: asyncio.StreamReader, connection: int) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body, connection)


@contextmanager
def fake_upstream(*, tls: ssl.SSLContext | None = None) -> Iterator[FakeUpstream]:
    upstream = FakeUpstream(tls=tls)
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()
