"""`POST /v1/messages` over a model server that misbehaves: what clients see, what is recorded."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import MessageParam

from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, USAGE, chunk, completion, event, hello
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import DEAD, RENAMED, USER, GatewayProcess


def ask(gateway: GatewayProcess, **body: Any) -> httpx.Response:
    return gateway.http.post("/v1/messages", json={"model": MODEL, "max_tokens": 9, "messages": [USER]} | body)


def events_of(text: str) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in text.split("\n") if line.startswith("data: ")]


def test_what_the_model_server_is_sent(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(completion()))
    response = ask(gateway, model=RENAMED, system="Be brief.", metadata={"user_id": "u"}, top_k=3)
    (request,) = upstream.received
    assert request.path == "/v1/chat/completions"
    assert request.json() == {
        "model": "qwen-inside",
        "max_tokens": 9,
        "messages": [{"role": "system", "content": "Be brief."}, USER],
    }
    assert response.json()["model"] == RENAMED
    assert response.headers["request-id"] == response.headers["x-request-id"]
    assert response.json()["id"] == "msg_" + response.headers["x-request-id"].replace("-", "")
    assert response.headers["x-dropped-params"] == "top_k"
    record = gateway.record(response)
    assert (record["endpoint"], record["prompt_tokens"], record["completion_tokens"]) == ("messages", 11, 7)


def test_a_stream_is_translated_and_metered(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.stream(*hello()))
    response = ask(gateway, stream=True)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = events_of(response.text)
    assert [one["delta"]["text"] for one in found if one["type"] == "content_block_delta"] == ["Hel", "lo"]
    assert (found[-2]["usage"]["input_tokens"], found[-2]["usage"]["output_tokens"]) == (11, 7)
    assert found[-1] == {"type": "message_stop"}
    assert "[DONE]" not in response.text
    record = gateway.record(response)
    assert (record["stream"], record["outcome"], record["usage"]) == (1, "ok", USAGE)


@pytest.mark.parametrize("then", [b"", b'data: {"choices": [{"index": 0, "del'])
def test_a_stream_that_breaks_ends_with_an_error_event(
    gateway: GatewayProcess, upstream: FakeUpstream, then: bytes
) -> None:
    upstream.then(replies.cut_stream(event(chunk("Hel")), then=then))
    response = ask(gateway, stream=True)
    last = events_of(response.text)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")
    assert last["request_id"] == response.headers["x-request-id"]
    assert "message_stop" not in response.text
    assert gateway.record(response)["outcome"] == "error"


def test_the_official_client_raises_what_broke_a_stream(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.cut_stream(event(chunk("Hel"))))
    said: list[MessageParam] = [{"role": "user", "content": "x"}]
    client = anthropic.Anthropic(base_url=gateway.url, api_key=gateway.secret, max_retries=0)
    with client, pytest.raises(anthropic.APIStatusError, match="ended the stream"):
        [*client.messages.create(model=MODEL, max_tokens=9, messages=said, stream=True)]


@pytest.mark.parametrize("body", [b"oops", b"[]", b"{}", b'{"choices": []}'])
def test_what_is_no_completion_is_a_502(gateway: GatewayProcess, upstream: FakeUpstream, body: bytes) -> None:
    upstream.then(replies.answer(body))
    response = ask(gateway)
    assert (response.status_code, response.json()["error"]["type"]) == (502, "api_error")
    assert gateway.record(response)["status"] == 502


def test_a_refusal_keeps_its_status_and_words(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer({"error": {"message": "Too long", "code": 1}}, status=400, retry_after="7"))
    response = ask(gateway)
    assert response.status_code == 400
    assert response.json() == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "Too long"},
        "request_id": response.headers["x-request-id"],
    }
    assert (response.headers["retry-after"], response.headers["content-type"]) == ("7", "application/json")


def test_a_dead_server_is_told_in_the_envelope(gateway: GatewayProcess) -> None:
    response = ask(gateway, model=DEAD)
    assert (response.status_code, response.json()["error"]["type"]) == (502, "api_error")


def test_silence_is_bridged_by_pings_that_the_official_client_passes_over(
    impatient: GatewayProcess, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()
    first, *rest = hello()
    upstream.then(replies.paused_stream(gate, [first], [*rest, replies.DONE]))
    body = {"model": MODEL, "max_tokens": 9, "messages": [USER], "stream": True}
    with impatient.http.stream("POST", "/v1/messages", json=body) as response:
        lines = response.iter_lines()
        while next(lines) != "event: ping":
            pass
        gate.open()
        assert "event: message_stop" in [*lines]
