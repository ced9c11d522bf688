"""`POST /v1/audio/speech`: a text as sound, streamed through as it is made; billed by the character."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from gateway.admission import Expected, Ticket
from gateway.caller import Caller
from gateway.catalog import Endpoint
from gateway.chat import call_headers, watch_client
from gateway.errors import CallError
from gateway.http import Headers, Send, read_body
from gateway.relay import Answer, Interrupted, Job
from gateway.schema import Json, parse_json_object, to_json
from gateway.speech_schema import SpeechRequest, parse_speech_request
from gateway.upstreams import Upstream

if TYPE_CHECKING:
    from gateway.app import Request
    from gateway.runtime import Runtime


async def serve(request: Request) -> None:
    caller = await request.caller()
    document = parse_json_object(await read_body(request.headers, request.receive))
    speech = parse_speech_request(document, find_model=request.runtime.upstreams.card)
    answer, ticket = await request.begin(speech_job(speech), caller=caller, expected=_expected(speech))
    watcher = asyncio.ensure_future(watch_client(answer, request.receive))
    try:
        async with answer:
            await _serve(answer, speech, ticket, request.send)
    except Interrupted:
        pass
    finally:
        watcher.cancel()


async def begin_speech(runtime: Runtime, document: Json, *, caller: Caller) -> tuple[Answer, SpeechRequest]:
    """The same in process: enter the answer, then read its `sound`. Raises CallError."""
    speech = parse_speech_request(document, find_model=runtime.upstreams.card)
    answer, _ = await runtime.begin(speech_job(speech), caller=caller, expected=_expected(speech))
    return answer, speech


def speech_job(speech: SpeechRequest) -> Job:
    def body(upstream: Upstream) -> bytes:
        return to_json({**speech.body, "model": upstream.served_as[speech.model]})

    return Job(model=speech.model, endpoint=Endpoint.SPEECH, body=body, called=Endpoint.SPEECH, stream=True)


def _expected(speech: SpeechRequest) -> Expected:
    return Expected(characters=speech.characters)


def content_type(answer: Answer, speech: SpeechRequest) -> bytes:
    return answer.header(b"content-type") or speech.content_type


async def sound(answer: Answer, speech: SpeechRequest) -> AsyncGenerator[bytes]:
    """The pieces of an answer that was entered, metered; its record is written before this ends."""
    # Whatever of it arrives: the backend has taken the whole text to work on.
    answer.call.characters = speech.characters
    async with aclosing(answer.pieces()) as pieces:
        async for piece in pieces:
            yield piece
    answer.complete()


async def _serve(answer: Answer, speech: SpeechRequest, ticket: Ticket, send: Send) -> None:
    headers: Headers = [
        (b"content-type", content_type(answer, speech)),
        (b"x-accel-buffering", b"no"),
        *call_headers(answer.call, ticket, dropped=speech.dropped),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async with aclosing(sound(answer, speech)) as pieces:
            async for piece in pieces:
                if not answer.client_is_gone:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
    except CallError:
        # Sound has no place for an error: the connection ends without the end of the body, and clients see that.
        return
    await send({"type": "http.response.body", "body": b""})
