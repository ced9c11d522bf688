"""`/healthz`: an answer of the event loop itself, which no database, thread or name of a host is needed for."""

from __future__ import annotations

import asyncio
from typing import Any

from config.asgi import application


def test_a_process_that_lives_says_so_to_whoever_asks_before_the_loop_turns() -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def asked() -> None:
        headers = [(b"host", b"10.0.0.7:8000")]
        scope = {"type": "http", "method": "GET", "path": "/healthz", "query_string": b"", "headers": headers}
        task = asyncio.Task(application(scope, receive, send), loop=asyncio.get_running_loop(), eager_start=True)
        assert task.done()

    asyncio.run(asked())
    start, body = sent
    assert (start["status"], body["body"]) == (200, b"ok")
    assert dict(start["headers"]) == {b"content-type": b"text/plain", b"content-length": b"2"}
