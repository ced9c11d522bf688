"""The web server's own part: nobody waits in the queue of one that starts; connections that dawdle are ended, those at
work are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from config.server import Protocol, bound
from tests.services import wait_until

REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
PATIENCE_SECONDS = 20.0


async def slow_application(scope: Any, receive: Any, send: Any) -> None:
    """Answers when several of the server's idle times are over."""
    await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """To a server that ends what is idle for a tenth of a second."""
    config = uvicorn.Config(slow_application, http=Protocol, ws="none", lifespan="off", log_config=None)
    config.timeout_keep_alive = 0.1  # type: ignore[assignment]
    server, sock = uvicorn.Server(config), bound("127.0.0.1", 0)
    server.capture_signals = suppress  # type: ignore[method-assign, assignment]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*sock.getsockname())
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    await asyncio.to_thread(wait_until, lambda: server.started, what="the server listening")
    reader, writer = await asyncio.open_connection(*sock.getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.should_exit = True
        await serving


def test_a_head_that_never_ends_is_not_waited_for() -> None:
    async def dawdle() -> bytes:
        async with connection() as (reader, writer), asyncio.timeout(PATIENCE_SECONDS):
            writer.write(REQUEST[:-2] + b"x-slow: ")
            answer = asyncio.create_task(reader.read())
            while not answer.done():
                writer.write(b"x")
                await asyncio.sleep(0.01)
            with suppress(ConnectionError):
                return await answer
            return b""

    assert asyncio.run(dawdle()) == b""


def test_a_connection_without_a_byte_is_ended() -> None:
    async def wait() -> bytes:
        async with connection() as (reader, _), asyncio.timeout(PATIENCE_SECONDS):
            return await reader.read()

    assert asyncio.run(wait()) == b""


def test_an_answer_may_take_longer_and_the_next_request_finds_the_connection_open() -> None:
    async def ask_twice() -> bytes:
        async with connection() as (reader, writer), asyncio.timeout(PATIENCE_SECONDS):
            writer.write(REQUEST)
            first = await reader.readexactly(len(ANSWER))
            writer.write(REQUEST)
            return first + await reader.read()

    assert asyncio.run(ask_twice()) == ANSWER * 2
