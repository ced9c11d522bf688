"""The endpoints that are no chat: each request read, worked, logged with its meter and answered."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.catalog import Endpoint, Model
from gateway.demo import chat_request, decisions, ocr, speech
from gateway.demo.connection import ClientGone, Connection
from gateway.demo.refusal import NoSuchModel, Refusal
from gateway.demo.request_log import RequestLog
from gateway.demo.settings import Settings
from gateway.demo.speech import SpeechRequest

type Json = dict[str, Any]
# Body and model → answer and what it used, under the names of the log.
type Work = Callable[[Json, Model], tuple[Json, Mapping[str, int]]]

CHUNK_BYTES = 24_000  # half a second of sound


@dataclass(frozen=True, slots=True)
class Endpoints:
    settings: Settings
    log: RequestLog

    async def ocr(self, connection: Connection) -> None:
        await self._whole(connection, Endpoint.OCR, _ocr)

    async def systemone(self, connection: Connection) -> None:
        await self._whole(connection, Endpoint.SYSTEMONE, _decide)

    async def _whole(self, connection: Connection, endpoint: Endpoint, work: Work) -> None:
        body: Json = {}
        try:
            body = chat_request.body_of(await connection.body())
            answer, used = work(body, self._model(body, endpoint))
        except ClientGone:
            return
        except Refusal as refusal:
            await self._refuse(connection, endpoint, body, refusal)
            return
        self._record(connection, endpoint, body, used=used)
        await connection.answer(200, answer)

    async def speech(self, connection: Connection) -> None:
        body: Json = {}
        try:
            body = chat_request.body_of(await connection.body())
            request = speech.read_request(body, model=self._model(body, Endpoint.SPEECH))
        except ClientGone:
            return
        except Refusal as refusal:
            await self._refuse(connection, Endpoint.SPEECH, body, refusal)
            return
        finished = False
        connection.watch()
        try:
            last = await self._play(connection, request)
            finished = True
        except ClientGone:
            return
        finally:
            connection.unwatch()
            used = {"characters": len(request.text)}
            self._record(connection, Endpoint.SPEECH, body, used=used, finished=finished)
        await connection.write(last, last=True)

    async def _play(self, connection: Connection, request: SpeechRequest) -> bytes:
        """Sends the sound as it is made; its last piece is left."""
        await connection.start(200, request.content_type)
        pace = request.wishes.pace_seconds or 0.0
        moment = asyncio.get_running_loop().time()
        gathered = bytearray()
        for sound in speech.audio(request):
            gathered += sound
            if len(gathered) >= CHUNK_BYTES:
                moment += pace
                await connection.pause_until(moment)
                await connection.write(bytes(gathered))
                gathered.clear()
        return bytes(gathered)

    def _model(self, body: Json, endpoint: Endpoint) -> Model:
        model = self.settings.catalog.get(str(body.get("model")))
        if model is None or model.endpoint is not endpoint:
            raise NoSuchModel(body.get("model"))
        return model

    async def _refuse(self, connection: Connection, endpoint: Endpoint, body: Json, refusal: Refusal) -> None:
        self._record(connection, endpoint, body, status=refusal.status, used={})
        await connection.answer(refusal.status, refusal.body())

    def _record(
        self,
        connection: Connection,
        endpoint: Endpoint,
        body: Json,
        *,
        used: Mapping[str, int],
        status: int = 200,
        finished: bool = True,
    ) -> None:
        self.log.write(
            {
                "request_id": connection.header("x-request-id"),
                "endpoint": endpoint,
                "model": body.get("model"),
                "status": status,
                **used,
                "finished": finished,
                "parameters": sorted(body),
                "ended_at": time.time(),
            }
        )


def _ocr(body: Json, model: Model) -> tuple[Json, Mapping[str, int]]:
    answer = ocr.answer(body, model=model.id)
    return answer, {"pages": answer["usage_info"]["pages_processed"]}


def _decide(body: Json, model: Model) -> tuple[Json, Mapping[str, int]]:
    answer = decisions.answer(body, model=model)
    return answer, {"input_tokens": answer["usage"]["input_tokens"]}
