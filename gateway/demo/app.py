"""The demo backend as an ASGI application.

GET  /v1/models               the models of the catalog
POST /v1/chat/completions     as the model's own backend answers it, streaming or not
POST /v1/ocr                  a PDF's text or a description of a picture, page by page
POST /v1/audio/speech         a text as sound
POST /v1/systemone            questions with a probability for every answer
GET  /health                  200 while it runs
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import zip_longest
from typing import Any

from gateway.demo import chat_request, generation, prompt, rules, wire
from gateway.demo.chat_request import ChatRequest
from gateway.demo.connection import ClientGone, Connection, Receive, Scope, Send
from gateway.demo.endpoints import Endpoints
from gateway.demo.generation import Choice, Kind
from gateway.demo.prefix_cache import PrefixCache
from gateway.demo.refusal import Refusal
from gateway.demo.request_log import RequestLog
from gateway.demo.settings import Settings
from gateway.demo.usage import Tally, usage_object

# Sends the last bytes of an answer, after its log line is written.
type Ending = Callable[[], Awaitable[None]]


def app(settings: Settings | None = None) -> "DemoBackend":
    """The ASGI application. Without settings: the bundled catalog, the default pace, no log."""
    return DemoBackend(settings or Settings())


class DemoBackend:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._cache = PrefixCache(blocks=settings.cached_blocks)
        self._log = RequestLog(settings.log)
        self._others = Endpoints(settings, self._log)
        self._started_at = int(time.time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"the demo backend does not speak {scope['type']}")
        await self._route(Connection(scope, receive, send))

    async def _route(self, connection: Connection) -> None:
        match connection.method, connection.path:
            case "GET", "/v1/models":
                await connection.answer(200, self._models())
            case "POST", "/v1/chat/completions":
                await self._chat(connection)
            case "POST", "/v1/ocr":
                await self._others.ocr(connection)
            case "POST", "/v1/audio/speech":
                await self._others.speech(connection)
            case "POST", "/v1/systemone":
                await self._others.systemone(connection)
            case "GET", "/health":
                await connection.answer(200, {"status": "ok"})
            case _:
                await connection.answer(404, {"detail": "Not Found"})

    def _models(self) -> dict[str, Any]:
        data = [
            {
                "id": model.id,
                "object": "model",
                "created": self._started_at,
                "owned_by": "demo",
                "root": model.id,
                "parent": None,
                "max_model_len": model.context_length,
            }
            for model in self.settings.catalog.values()
        ]
        return {"object": "list", "data": data}

    async def _chat(self, connection: Connection) -> None:
        body: dict[str, Any] = {}
        try:
            body = chat_request.body_of(await connection.body())
            request = chat_request.read(body, catalog=self.settings.catalog)
            rules.check(request)
            rendered = prompt.render(request)
            rules.check_context(request, prompt_tokens=len(rendered.tokens))
        except ClientGone:
            return
        except Refusal as refusal:
            self._record(connection, body, status=refusal.status, tally=Tally(0, 0, 0), finished=True)
            await connection.answer(refusal.status, refusal.body())
            return
        tally = Tally(
            prompt_tokens=len(rendered.tokens),
            cached_tokens=self._cache.admit(request.model.id, rendered.tokens),
            image_tokens=rendered.image_tokens,
        )
        await self._serve(connection, body, request, tally, generation.generate(request, rendered))

    async def _serve(
        self, connection: Connection, body: dict[str, Any], request: ChatRequest, tally: Tally, choices: list[Choice]
    ) -> None:
        """Answers, and writes the log line before the last bytes or once the client is gone."""
        deliver = self._stream if request.stream else self._complete
        finished = False
        connection.watch()
        try:
            send_ending = await deliver(connection, request, tally, choices)
            finished = True
        except ClientGone:
            return
        finally:
            connection.unwatch()
            self._record(connection, body, status=200, tally=tally, finished=finished)
        await send_ending()

    async def _complete(
        self, connection: Connection, request: ChatRequest, tally: Tally, choices: list[Choice]
    ) -> Ending:
        """Prepares the whole completion; it only takes time where the prompt asked for a pace."""
        pace = request.wishes.pace_seconds or 0.0
        moment = asyncio.get_running_loop().time()
        for choice in choices:
            for piece in choice.pieces:
                if pace:
                    moment += pace
                    await connection.pause_until(moment)
                tally.add(thinking=piece.kind is Kind.THINKING)
        document = wire.completion(request.model, choices, usage_object(request.model, tally))
        return partial(connection.answer, 200, document)

    async def _stream(
        self, connection: Connection, request: ChatRequest, tally: Tally, choices: list[Choice]
    ) -> Ending:
        """Sends every chunk up to the usage; what closes the stream is left."""
        wished = request.wishes.pace_seconds
        pace = self.settings.pace_seconds if wished is None else wished
        every = request.include_usage and request.continuous_usage
        chunks = wire.Chunks(request.model, usage=(lambda: usage_object(request.model, tally)) if every else None)
        await connection.start_stream()
        for choice in choices:
            await connection.write(chunks.opening(choice.index))
        moment = asyncio.get_running_loop().time()
        # Several choices grow side by side, a token of each in turn.
        for row in zip_longest(*(choice.pieces for choice in choices)):
            moment += pace
            await connection.pause_until(moment)
            for index, piece in enumerate(row):
                if piece is not None:
                    tally.add(thinking=piece.kind is Kind.THINKING)
                    await connection.write(chunks.piece(index, piece))
        for choice in choices:
            await connection.write(chunks.closing(choice))
        if request.include_usage:
            await connection.write(chunks.usage_chunk(usage_object(request.model, tally)))
        return partial(connection.write, wire.DONE, last=True)

    def _record(
        self, connection: Connection, body: dict[str, Any], *, status: int, tally: Tally, finished: bool
    ) -> None:
        self._log.write(
            {
                "request_id": connection.header("x-request-id"),
                "endpoint": "chat",
                "model": body.get("model"),
                "status": status,
                "stream": body.get("stream") is True,
                "prompt_tokens": tally.prompt_tokens,
                "cached_tokens": tally.cached_tokens,
                "image_tokens": tally.image_tokens,
                "completion_tokens": tally.completion_tokens,
                "reasoning_tokens": tally.reasoning_tokens,
                "finished": finished,
                "parameters": sorted(body),
                "ended_at": time.time(),
            }
        )
