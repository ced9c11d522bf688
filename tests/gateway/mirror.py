"""A team's own server on a socket: remembers every request to the byte and answers as a test says."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Seen:
    """One request: its first line and headers as they came, its body without the framing."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
    complete: bool = False
    cut: bool = False

    def header(self, name: bytes) -> bytes | None:
        return next((value for found, value in self.headers if found.lower() == name), None)


type Script = Callable[["Line", Seen], Awaitable[None]]


class Line:
    """The connection under one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def pieces(self, seen: Seen) -> Any:
        """The body as it comes, each piece as soon as it is there."""
        length = seen.header(b"content-length")
        if (seen.header(b"transfer-encoding") or b"").lower() == b"chunked":
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        else:
            left = int(length or 0)
            while left:
                piece = await self.reader.read(min(left, 65536))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(piece)
                yield piece

    async def read_body(self, seen: Seen) -> None:
        async for piece in self.pieces(seen):
            seen.body += piece
        seen.complete = True

    async def until_hangup(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


def says(data: bytes, *, then_close: bool = False) -> Script:
    """Reads the whole request, then sends exactly these bytes."""

    async def script(line: Line, seen: Seen) -> None:
        await line.read_body(seen)
        await line.send(data)
        if then_close:
            line.writer.close()

    return script


@dataclass
class Mirror:
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    scripts: list[Script] = field(default_factory=list)
    hangups: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/base/v1"

    def event(self) -> asyncio.Event:
        return asyncio.Event()

    def set(self, event: asyncio.Event) -> None:
        self.loop.call_soon_threadsafe(event.set)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                first, *rest = head[:-4].split(b"\r\n")
                headers = [(name, value.strip()) for name, _, value in (entry.partition(b":") for entry in rest)]
                seen = Seen(first, headers)
                self.seen.append(seen)
                try:
                    await self.scripts.pop(0)(line, seen)
                except (asyncio.IncompleteReadError, ConnectionError, ValueError):
                    seen.cut = True
                    self.hangups.release()
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@contextlib.contextmanager
def mirror() -> Iterator[Mirror]:
    made = Mirror()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(made._serve, "127.0.0.1", 0, limit=2**20)

    thread = threading.Thread(target=made.loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(listen(), made.loop).result(10)
    made.port = server.sockets[0].getsockname()[1]

    async def end() -> None:
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        yield made
    finally:
        asyncio.run_coroutine_threadsafe(end(), made.loop).result(10)
        made.loop.call_soon_threadsafe(made.loop.stop)
        thread.join()
        made.loop.close()
