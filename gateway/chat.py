"""`POST /v1/chat/completions` over HTTP: a whole answer, or a stream with keep-alives."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import orjson

from gateway.call import Call
from gateway.errors import CallError
from gateway.http import JSON, Headers, Receive, Send, printable, send_answer
from gateway.relay import Answer, Interrupted, Relay
from gateway.schema import ChatRequest
from gateway.sse import data_event

KEEP_ALIVE_SECONDS = 15.0
# A comment and a blank line: clients that follow the standard skip both.
KEEP_ALIVE = b": keep-alive\n\n"
MAX_DROPPED_NAMED = 50
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def answer_headers(call: Call, request: ChatRequest) -> Headers:
    headers = [(b"x-request-id", call.request_id.encode("ascii"))]
    if request.dropped:
        names = ", ".join(printable(name) for name in sorted(request.dropped)[:MAX_DROPPED_NAMED])
        headers.append((b"x-dropped-params", names.encode("ascii")))
    if request.adapted:
        headers.append((b"x-adapted", ", ".join(request.adapted).encode("ascii")))
    return headers


async def serve_whole(relay: Relay, request: ChatRequest, call: Call, send: Send) -> None:
    body = await relay.complete(request, call=call)
    await send_answer(send, status=200, headers=[JSON, *answer_headers(call, request)], body=body)


async def serve_stream(relay: Relay, request: ChatRequest, call: Call, receive: Receive, send: Send) -> None:
    answer = relay.open(request, call=call)
    watcher = asyncio.ensure_future(_watch(answer, receive))
    try:
        async with answer:
            client = StreamClient(send, answer)
            await client.start([*STREAM_HEADERS, *answer_headers(call, request)])
            try:
                async with aclosing(answer.events()) as events:
                    async for data in events:
                        await client.send_events(data)
            except CallError as error:
                # The status line is gone; whole events have been flushed. No [DONE] follows.
                await client.send_events(data_event(orjson.dumps(orjson.loads(error.body()))))
            finally:
                client.stop()
            await client.end()
    except Interrupted:
        pass
    finally:
        watcher.cancel()


async def _watch(answer: Answer, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.client_left()


class StreamClient:
    """The client's side of a stream: nothing is sent to one who has left; silence is bridged."""

    def __init__(self, send: Send, answer: Answer) -> None:
        self._send = send
        self._answer = answer
        self._sent_at = time.monotonic()
        self._sending = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._keeping_alive: asyncio.Task[None] | None = None

    async def start(self, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self._on_timer)

    async def send_events(self, data: bytes) -> None:
        if self._answer.client_is_gone:
            return
        self._sending = True
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self._sending = False
        self._sent_at = time.monotonic()

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._keeping_alive:
            self._keeping_alive.cancel()

    def _on_timer(self) -> None:
        # One timer a stream, looked at again when it was early: chunks do not touch it.
        silent_seconds = time.monotonic() - self._sent_at
        if silent_seconds >= KEEP_ALIVE_SECONDS:
            silent_seconds = 0.0
            if not self._sending:
                self._keeping_alive = self._loop.create_task(self.send_events(KEEP_ALIVE))
        self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS - silent_seconds, self._on_timer)
