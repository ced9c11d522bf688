"""OCR, speech and decisions over a model server that misbehaves: what clients see, what is recorded."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.documents import data_url, encrypted_pdf, pdf, png
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import GatewayProcess
from tests.services import wait_until

URL = data_url(pdf("One", "Two"), "application/pdf")
PAGES = [{"index": 0, "markdown": "One"}, {"index": 1, "markdown": "Two"}]
READ = {"pages": PAGES, "model": "mineru-inside", "usage_info": {"pages_processed": 2, "doc_size_bytes": 9}}
DECIDED = {"model": "d3-inside", "answers": {"q": {"type": "noul", "noul": 0.5}}, "usage": {"input_tokens": 40}}
QUESTIONS = {"q": {"type": "noul", "instructions": "Is it?"}}


def read(gateway: GatewayProcess, **fields: Any) -> httpx.Response:
    document = {"type": "document_url", "document_url": URL}
    return gateway.http.post("/v1/ocr", json={"model": "MinerU2.5-Pro", "document": document} | fields)


def speak(gateway: GatewayProcess, **fields: Any) -> httpx.Response:
    return gateway.http.post("/v1/audio/speech", json={"model": "OmniVoice", "input": "Grüße 👋"} | fields)


def decide(gateway: GatewayProcess, **fields: Any) -> httpx.Response:
    return gateway.http.post("/v1/systemone", json={"model": "d3", "state": "x", "questions": QUESTIONS} | fields)


# -- documents -----------------------------------------------------------------------------------


def test_a_document_is_read_under_the_servers_own_name_of_the_model(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(READ))
    response = read(gateway, pages="1,0", image_limit=3)
    (request,) = upstream.received
    assert request.path == "/v1/ocr"
    document = {"type": "document_url", "document_url": URL}
    assert request.json() == {"model": "mineru-inside", "document": document, "pages": [0, 1]}
    assert response.json() == READ | {"model": "MinerU2.5-Pro"}
    assert response.headers["x-dropped-params"] == "image_limit"
    record = gateway.record(response)
    assert (record["pages"], record["estimated"], record["usage"]) == (2, 0, READ["usage_info"])


def test_the_answer_of_mineru_itself(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    blocks = '[{"type": "text", "text": "Hello", "page_idx": 0}]'
    result = {"content_list": blocks, "middle_json": '{"pdf_info": [{"page_size": [612, 792]}]}'}
    upstream.then(replies.answer({"results": {"document": result}}), replies.answer({"results": {"document": {}}}))
    response = read(gateway)
    assert response.json()["pages"][0]["markdown"] == "Hello"
    assert gateway.record(response)["pages"] == 1
    assert read(gateway).status_code == 502


@pytest.mark.parametrize("document", [pdf("One")[:150], encrypted_pdf(), png(1, 1)[:20]], ids=["cut", "locked", "png"])
def test_a_document_that_cannot_be_read_reaches_no_backend(
    gateway: GatewayProcess, upstream: FakeUpstream, document: bytes
) -> None:
    url = data_url(document, "application/pdf" if document.startswith(b"%PDF") else "image/png")
    response = read(gateway, document={"type": "image_url", "image_url": url})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "document.image_url")
    assert upstream.received == []


@pytest.mark.parametrize("usage", [None, {}, {"pages_processed": None}, {"pages_processed": -1}, "two"])
def test_pages_without_a_count_are_counted_and_marked(
    gateway: GatewayProcess, upstream: FakeUpstream, usage: Any
) -> None:
    upstream.then(replies.answer(READ | {"usage_info": usage}))
    record = gateway.record(read(gateway))
    assert (record["pages"], record["estimated"], record["prompt_tokens"]) == (2, 1, 0)


@pytest.mark.parametrize("body", [b"oops", b"[]", b"\xff"])
def test_an_answer_that_is_no_object_is_a_502(gateway: GatewayProcess, upstream: FakeUpstream, body: bytes) -> None:
    upstream.then(replies.answer(body), replies.answer(body))
    for response in (read(gateway), decide(gateway)):
        assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unavailable")
        record = gateway.record(response)
        assert (record["status"], record["outcome"], record["pages"]) == (502, "error", 0)


@pytest.mark.parametrize("ask", [read, speak, decide])
def test_a_refusal_goes_through_untouched_and_costs_nothing(
    gateway: GatewayProcess, upstream: FakeUpstream, ask: Any
) -> None:
    upstream.then(replies.answer(b'{"detail": "no"}', status=422))
    response = ask(gateway)
    assert (response.status_code, response.content) == (422, b'{"detail": "no"}')
    record = gateway.record(response)
    assert (record["outcome"], record["pages"], record["characters"], record["prompt_tokens"]) == ("error", 0, 0, 0)


# -- speech --------------------------------------------------------------------------------------


def test_sound_goes_through_byte_for_byte_with_its_type(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    sound = bytes(range(256)) * 50
    upstream.then(replies.answer(sound, content_type="audio/x-own"))
    response = speak(gateway, response_format="opus")
    assert (response.content, response.headers["content-type"]) == (sound, "audio/x-own")
    assert upstream.received[0].json() == {"model": "OmniVoice", "input": "Grüße 👋", "response_format": "opus"}
    record = gateway.record(response)
    assert (record["endpoint"], record["characters"], record["bytes_out"]) == ("speech", 7, len(sound))


def test_sound_goes_out_as_it_comes(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, [b"first"], [b"second"]))
    body = {"model": "OmniVoice", "input": "Hi"}
    with gateway.http.stream("POST", "/v1/audio/speech", json=body) as response:
        pieces = response.iter_bytes()
        assert next(pieces) == b"first"
        gate.open()
        assert b"".join(pieces) == b"second"


def test_sound_that_breaks_off_is_seen_to_break_off(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.cut_stream(b"half"))
    with gateway.http.stream("POST", "/v1/audio/speech", json={"model": "OmniVoice", "input": "Hi"}) as response:
        with pytest.raises(httpx.RemoteProtocolError):
            [*response.iter_bytes()]
        record = gateway.record(response)
    assert (record["status"], record["outcome"], record["characters"]) == (200, "error", 2)


def test_a_listener_who_leaves_is_recorded(impatient: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after(replies.head(content_type="audio/wav"), b"begin"))
    with impatient.http.stream("POST", "/v1/audio/speech", json={"model": "OmniVoice", "input": "Hi"}) as response:
        assert next(response.iter_bytes()) == b"begin"
    record = impatient.record(response)
    assert (record["outcome"], record["characters"]) == ("client_gone", 2)
    wait_until(lambda: upstream.hangups != [], what="the model server being left")


# -- decisions -----------------------------------------------------------------------------------


def test_a_decision(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(DECIDED))
    response = decide(gateway, videos=[data_url(b"v", "video/mp4")])
    assert upstream.received[0].path == "/v1/systemone"
    assert upstream.received[0].json() == {
        "model": "d3-inside",
        "state": "x",
        "questions": QUESTIONS,
        "videos": [data_url(b"v", "video/mp4")],
    }
    assert response.json() == DECIDED | {"model": "d3"}
    record = gateway.record(response)
    assert (record["prompt_tokens"], record["completion_tokens"], record["estimated"]) == (40, 0, 0)


def test_a_decision_without_usage_is_guessed_and_marked(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(DECIDED | {"usage": None}))
    record = gateway.record(decide(gateway, state="word " * 400))
    assert 500 <= record["prompt_tokens"] <= 530
    assert record["estimated"] == 1
