"""A chat completion: what is asked of the backend, and its answer over HTTP, whole or streamed with keep-alives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection

import orjson
from django.conf import settings

from gateway.admission import DEFAULT_OUTPUT_TOKENS, Expected, Ticket
from gateway.call import Call
from gateway.catalog import Endpoint
from gateway.chat_stream import DONE_EVENT, rewrite_completion
from gateway.company import step_done
from gateway.errors import CallError, UpstreamUnavailable
from gateway.http import JSON, Headers, Receive, Send, begun, printable, send_answer
from gateway.relay import Answer, Interrupted, Job
from gateway.schema import ChatRequest, to_json
from gateway.sse import data_event
from gateway.upstreams import Upstream

KEEP_ALIVE_SECONDS = float(settings.KEEP_ALIVE_SECONDS)
# A comment and a blank line: clients that follow the standard skip both.
KEEP_ALIVE = b": keep-alive\n\n"
MAX_DROPPED_NAMED = 50
STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def chat_job(request: ChatRequest, *, called: str = "chat") -> Job:
    """What a checked request asks of a backend; usage is always asked for, on every chunk where that is possible."""

    def body(upstream: Upstream) -> bytes:
        document = {**request.body, "model": upstream.served_as[request.model]}
        if request.stream:
            options = {"include_usage": True}
            if upstream.kind.counts_as_it_goes:
                options["continuous_usage_stats"] = True
            document["stream_options"] = options
        return to_json(document)

    excess_bytes = request.picture_excess_bytes
    return Job(request.model, Endpoint.CHAT, body, called, request.stream, request.include_usage, excess_bytes)


def expected_of(request: ChatRequest, prompt_bytes: int) -> Expected:
    output_tokens = request.body.get("max_tokens") or DEFAULT_OUTPUT_TOKENS
    prompt_bytes = max(0, prompt_bytes - request.picture_excess_bytes)
    return Expected(prompt_bytes, output_tokens * (request.body.get("n") or 1))


def call_headers(call: Call, ticket: Ticket, *, dropped: Collection[str]) -> Headers:
    """What the answer to any call carries: its id, what is left of the limits, what was sent in vain."""
    headers = [(b"x-request-id", call.request_id.encode("ascii")), *ticket.headers()]
    if dropped:
        names = ", ".join(printable(name) for name in sorted(dropped)[:MAX_DROPPED_NAMED])
        headers.append((b"x-dropped-params", names.encode("ascii")))
    return headers


def answer_headers(call: Call, request: ChatRequest, ticket: Ticket) -> Headers:
    headers = call_headers(call, ticket, dropped=request.dropped)
    if request.adapted:
        headers.append((b"x-adapted", ", ".join(request.adapted).encode("ascii")))
    return headers


async def serve_whole(answer: Answer, headers: Headers, send: Send) -> None:
    """Runs to its end even if the client has left: what the backend works for is metered."""
    async with answer:
        try:
            body = rewrite_completion(answer.call, await answer.read())
        except ValueError:
            raise UpstreamUnavailable("The model server's answer was not JSON.") from None
        answer.complete(bytes_out=len(body), alone=False)
    await step_done()
    answer.call.written()
    await send_answer(send, status=200, headers=[JSON, *headers], body=body)


async def serve_stream(answer: Answer, headers: Headers, receive: Receive, send: Send) -> None:
    watcher = asyncio.ensure_future(watch_client(answer, receive))
    try:
        async with answer:
            client = StreamClient(send, answer)
            await client.start([*STREAM_HEADERS, *headers])
            last = b""
            try:
                await answer.pump(client.write)
                last = DONE_EVENT
            except CallError as error:
                # The status line is gone; whole events have been flushed. No [DONE] follows.
                last = data_event(orjson.dumps(orjson.loads(error.body())))
            finally:
                client.stop()
            await client.end(last)
    except Interrupted:
        pass
    finally:
        watcher.cancel()


async def watch_client(answer: Answer, receive: Receive) -> None:
    """Tells the answer when its client leaves; a task to be cancelled when all is sent."""
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.client_left()


class StreamClient:
    """The client's side of a stream: nothing is sent to one who has left; silence is bridged."""

    def __init__(self, send: Send, answer: Answer, *, keep_alive: bytes = KEEP_ALIVE) -> None:
        self._send = send
        self._answer = answer
        self._keep_alive = keep_alive
        self._loop = asyncio.get_running_loop()
        self._sent_at = self._loop.time()
        self._sending = False
        self._timer: asyncio.TimerHandle | None = None
        self._keeping_alive: asyncio.Future[None] | None = None

    async def start(self, headers: Headers) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS, self._on_timer)

    def write(self, data: bytes) -> Awaitable[None] | None:
        """Send at once; what is returned waits for a client who cannot take it at once."""
        if self._answer.client_is_gone:
            return None
        self._sent_at = self._loop.time()
        rest = begun(self._send({"type": "http.response.body", "body": data, "more_body": True}))
        return None if rest is None else self._sent(rest)

    async def end(self, last: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": b"" if self._answer.client_is_gone else last})

    async def _sent(self, rest: Awaitable[None]) -> None:
        self._sending = True
        try:
            await rest
        finally:
            self._sending = False
            self._sent_at = self._loop.time()

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._keeping_alive:
            self._keeping_alive.cancel()

    def _on_timer(self) -> None:
        # One timer a stream, looked at again when it was early: chunks do not touch it.
        silent_seconds = self._loop.time() - self._sent_at
        if silent_seconds >= KEEP_ALIVE_SECONDS:
            silent_seconds = 0.0
            if not self._sending and (rest := self.write(self._keep_alive)) is not None:
                self._keeping_alive = asyncio.ensure_future(rest)
        self._timer = self._loop.call_later(KEEP_ALIVE_SECONDS - silent_seconds, self._on_timer)
