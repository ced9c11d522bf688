"""Documents, speech and decisions in process, as the pages use them: the same admission, the same records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from billing.models import Source
from gateway.admission import NO_SITE_LIMITS, Admission
from gateway.caller import Caller
from gateway.catalog import load
from gateway.errors import InvalidRequest
from gateway.gates import LocalGates
from gateway.ocr_api import begin_document, read
from gateway.pdfs import Pdfs
from gateway.relay import Relay, RelaySettings
from gateway.runtime import Runtime
from gateway.speech_api import begin_speech, content_type, sound
from gateway.systemone_api import begin_decision, decide
from gateway.transport import Transport
from gateway.upstreams import Upstream, Upstreams
from tests.documents import data_url, pdf
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream

PERSON = Caller(team_id=1, key_id=0, member_id=7, source=Source.PLAYGROUND)
DOCUMENT = {"type": "document_url", "document_url": data_url(pdf("One"), "application/pdf")}
SERVED = ["MinerU2.5-Pro", "OmniVoice", "d3"]


class Records:
    """A journal that keeps what it is told."""

    def __init__(self) -> None:
        self.finished: list[dict[str, Any]] = []

    def start(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        pass

    def write(self, request_id: str) -> None:
        pass

    def finish(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        self.finished.append(orjson.loads(json))


@asynccontextmanager
async def running(upstream: FakeUpstream) -> AsyncIterator[tuple[Runtime, Records]]:
    """What of a runtime a call passes through, without a database."""
    records, transport = Records(), Transport()
    server = Upstream(name="u", base_url=upstream.url, served_as={name: name for name in SERVED}, discovers=False)
    upstreams = Upstreams([server], catalog=load(), transport=transport)
    relay = Relay(upstreams=upstreams, transport=transport, log=records, settings=RelaySettings())
    admission, pdfs = Admission(LocalGates(), limits=NO_SITE_LIMITS), Pdfs()
    held = SimpleNamespace(upstreams=upstreams, relay=relay, admission=admission, pdfs=pdfs)
    held.begin = Runtime.begin.__get__(held)
    try:
        yield cast(Runtime, held), records
    finally:
        await transport.aclose()
        await pdfs.aclose()


def test_a_document(upstream: FakeUpstream) -> None:
    upstream.then(replies.answer({"pages": [{"index": 0, "markdown": "One"}], "usage_info": {"pages_processed": 1}}))

    async def scene() -> None:
        async with running(upstream) as (runtime, records):
            body = {"model": "MinerU2.5-Pro", "document": DOCUMENT}
            call, asked = await begin_document(runtime, body, caller=PERSON)
            answer = await read(call, asked, runtime.pdfs)
            assert answer["pages"][0]["markdown"] == "One"
            (record,) = records.finished
            assert record["id"] == call.request_id.hex
            assert (record["source"], record["member_id"], record["pages"]) == ("playground", 7, 1)

    asyncio.run(scene())


def test_a_decision_and_a_refusal(upstream: FakeUpstream) -> None:
    upstream.then(replies.answer({"answers": {}, "usage": {"input_tokens": 9}}))
    questions = {"q": {"type": "noul", "instructions": "Is it?"}}

    async def scene() -> None:
        async with running(upstream) as (runtime, records):
            body: dict[str, Any] = {"model": "d3", "state": "x", "questions": questions}
            call, asked = await begin_decision(runtime, body, caller=PERSON)
            assert (await decide(call, asked))["usage"]["input_tokens"] == 9
            assert records.finished[0]["prompt_tokens"] == 9
            with pytest.raises(InvalidRequest):
                await begin_decision(runtime, body | {"questions": {}}, caller=PERSON)

    asyncio.run(scene())


def test_speech_is_read_piece_by_piece(upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(b"sound", content_type="audio/wav"))

    async def scene() -> None:
        async with running(upstream) as (runtime, records):
            answer, speech = await begin_speech(runtime, {"model": "OmniVoice", "input": "Hello"}, caller=PERSON)
            async with answer:
                assert content_type(answer, speech) == b"audio/wav"
                assert b"".join([piece async for piece in sound(answer, speech)]) == b"sound"
            assert (records.finished[0]["characters"], records.finished[0]["outcome"]) == (5, "ok")

    asyncio.run(scene())
