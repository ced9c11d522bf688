"""`POST /v1/systemone`: typed questions about a state, a probability for every answer; billed by the input token."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
from django.conf import settings

from gateway import lenient_json
from gateway.admission import BYTES_PER_TOKEN, Expected
from gateway.caller import Caller
from gateway.catalog import Endpoint
from gateway.chat import call_headers
from gateway.errors import UpstreamUnavailable
from gateway.http import JSON, read_body, send_answer
from gateway.relay import Answer, Job
from gateway.schema import Json, parse_json_object, to_json
from gateway.systemone_schema import SystemoneRequest, parse_systemone_request
from gateway.upstreams import Upstream

if TYPE_CHECKING:
    from gateway.app import Request
    from gateway.runtime import Runtime

MAX_BODY_BYTES = settings.MAX_DOCUMENT_MIB * 1024 * 1024
# For setting points aside: base64 says nothing of how many tokens a picture or a video takes.
TOKENS_PER_MEDIUM = 1_000


async def serve(request: Request) -> None:
    caller = await request.caller()
    raw = await read_body(request.headers, request.receive, limit_bytes=MAX_BODY_BYTES)
    asked = await asyncio.to_thread(_parse, raw, request.runtime)
    answer, ticket = await request.begin(systemone_job(asked), caller=caller, expected=_expected(asked))
    body = orjson.dumps(await decide(answer, asked))
    headers = [JSON, *call_headers(answer.call, ticket, dropped=asked.dropped)]
    await send_answer(request.send, status=200, headers=headers, body=body)


async def begin_decision(runtime: Runtime, document: Json, *, caller: Caller) -> tuple[Answer, SystemoneRequest]:
    """The same in process: `decide` makes an answer of both. Raises CallError."""
    asked = await asyncio.to_thread(parse_systemone_request, document, find_model=runtime.upstreams.card)
    answer, _ = await runtime.begin(systemone_job(asked), caller=caller, expected=_expected(asked))
    return answer, asked


def _parse(raw: bytes, runtime: Runtime) -> SystemoneRequest:
    return parse_systemone_request(parse_json_object(raw), find_model=runtime.upstreams.card)


def systemone_job(asked: SystemoneRequest) -> Job:
    def body(upstream: Upstream) -> bytes:
        return to_json({**asked.body, "model": upstream.served_as[asked.model]})

    return Job(model=asked.model, endpoint=Endpoint.SYSTEMONE, body=body, called=Endpoint.SYSTEMONE)


def _expected(asked: SystemoneRequest) -> Expected:
    return Expected(prompt_bytes=_prompt_bytes(asked))


def _prompt_bytes(asked: SystemoneRequest) -> int:
    media = len(asked.body.get("images", ())) + len(asked.body.get("videos", ()))
    text = to_json({"state": asked.body["state"], "questions": asked.body["questions"]})
    return len(text) + media * TOKENS_PER_MEDIUM * BYTES_PER_TOKEN


async def decide(answer: Answer, asked: SystemoneRequest) -> Json:
    """Runs to its end even if the client has left: what the backend works for is metered."""
    async with answer:
        try:
            document: Json = lenient_json.loads(await answer.read())
            document["model"] = asked.model
            bytes_out = len(lenient_json.dumps(document))
        except (ValueError, TypeError):
            raise UpstreamUnavailable("The model server's answer was not a JSON object.") from None
        call = answer.call
        call.usage = document.get("usage")
        # Where usage says nothing, the input is guessed from the text, and the record says that it was.
        call.output_chunks = 1
        call.prompt_bytes = _prompt_bytes(asked)
        answer.complete(bytes_out=bytes_out)
    return document
