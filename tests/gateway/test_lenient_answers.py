"""Answers that are almost JSON reach the client as JSON, whole and streamed, and their usage is read."""

from __future__ import annotations

import json
from typing import Any

import httpx
import orjson
import pytest

from gateway.chat_stream import Chunks
from tests.documents import data_url, pdf
from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, USAGE, chunk, completion, event, hello
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import RENAMED, GatewayProcess

# In order: a number that failed, half a pair, bytes that are no character.
ODDITIES = [(b"NaN", None), (b"-Infinity", None), (b'"half \\ud83d"', "half \ufffd"), (b'"\xff"', "\ufffd")]
USAGE_TEXT = json.dumps(USAGE).encode()


def answer_with(oddity: bytes) -> bytes:
    return json.dumps(completion(odd="ODD")).encode().replace(b'"ODD"', oddity)


def used(record: dict[str, Any]) -> tuple[int, int, int, str]:
    return record["prompt_tokens"], record["completion_tokens"], record["estimated"], record["outcome"]


@pytest.mark.parametrize(("oddity", "read"), ODDITIES)
@pytest.mark.parametrize("model", [MODEL, RENAMED])
def test_a_whole_answer(gateway: GatewayProcess, upstream: FakeUpstream, oddity: bytes, read: Any, model: str) -> None:
    upstream.then(replies.answer(answer_with(oddity)))
    response = gateway.ask(model=model)
    assert orjson.loads(response.content) == completion(odd=read, model=model)
    assert used(gateway.record(response)) == (11, 7, 0, "ok")


@pytest.mark.parametrize(("oddity", "read"), ODDITIES)
def test_the_usage_of_a_stream(gateway: GatewayProcess, upstream: FakeUpstream, oddity: bytes, read: Any) -> None:
    last = b'data: {"choices": [], "usage": %s, "odd": %s}\n\n' % (USAGE_TEXT, oddity)
    upstream.then(replies.stream(*hello(usage=None), last))
    response = gateway.ask(stream=True, stream_options={"include_usage": True})
    *_, usage, done = response.content.split(b"\n\n")[:-1]
    assert orjson.loads(usage.removeprefix(b"data: ")) == {"choices": [], "usage": USAGE, "odd": read}
    assert done == b"data: [DONE]"
    assert used(gateway.record(response)) == (11, 7, 0, "ok")


def test_a_chunk_that_has_to_be_renamed(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    odd = event(chunk("Hi", model="qwen-inside", logprob="ODD")).replace(b'"ODD"', b"NaN")
    upstream.then(replies.stream(odd, event(chunk(finish_reason="stop")), event({"choices": [], "usage": USAGE})))
    response = gateway.ask(model=RENAMED, stream=True)
    first = orjson.loads(response.content.split(b"\n\n")[0].removeprefix(b"data: "))
    assert first == chunk("Hi", model=RENAMED, logprob=None)
    assert "qwen-inside" not in response.text
    assert used(gateway.record(response)) == (11, 7, 0, "ok")


def test_a_message(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(
        replies.answer(answer_with(b"NaN")), replies.stream(*[odd.replace(b"lo", b"\xff") for odd in hello()])
    )
    asked = {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    whole = gateway.http.post("/v1/messages", json=asked)
    assert whole.json()["content"] == [{"type": "text", "text": "Hello"}]
    streamed = gateway.http.post("/v1/messages", json=asked | {"stream": True})
    assert "message_stop" in streamed.text
    assert [used(gateway.record(answer)) for answer in (whole, streamed)] == [(11, 7, 0, "ok")] * 2


def test_a_document_and_a_decision(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(
        replies.answer(b'{"pages": [{"index": 0, "markdown": "a \\ud83d"}], "usage_info": {"pages_processed": 1}}'),
        replies.answer(b'{"answers": {"q": {"type": "noul", "probabilities": NaN}}, "usage": {"input_tokens": 3}}'),
    )
    document = {"type": "document_url", "document_url": data_url(pdf("One"), "application/pdf")}
    read = gateway.http.post("/v1/ocr", json={"model": "MinerU2.5-Pro", "document": document})
    assert read.json()["pages"][0]["markdown"] == "a \ufffd"
    assert gateway.record(read)["pages"] == 1
    question = {"type": "noul", "instructions": "Is it wet?"}
    decided = gateway.http.post("/v1/systemone", json={"model": "d3", "state": "x", "questions": {"q": question}})
    assert _strict(decided)["answers"]["q"]["probabilities"] is None
    assert used(gateway.record(decided)) == (3, 0, 0, "ok")


def test_what_is_nested_too_deeply_to_be_passed_on_is_a_502(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    """It can be read and not be written again."""
    deep = b"[" * 600 + b"]" * 600
    arguments = json.dumps({"deep": "DEEP"}).replace('"DEEP"', deep.decode())
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    called = completion()
    called["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    upstream.then(
        replies.answer(called), replies.answer(b'{"pages": %s}' % deep), replies.answer(b'{"answers": %s}' % deep)
    )
    post = gateway.http.post
    document = {"type": "document_url", "document_url": data_url(pdf("One"), "application/pdf")}
    question = {"type": "noul", "instructions": "Is it wet?"}
    user = {"role": "user", "content": "x"}
    for answer in (
        post("/v1/messages", json={"model": MODEL, "max_tokens": 9, "messages": [user]}),
        post("/v1/ocr", json={"model": "MinerU2.5-Pro", "document": document}),
        post("/v1/systemone", json={"model": "d3", "state": "x", "questions": {"q": question}}),
    ):
        assert answer.status_code == 502
        record = gateway.record(answer)
        assert (record["status"], record["outcome"]) == (502, "error")


def test_a_reader_in_this_process_gets_objects() -> None:
    odd = b'data: {"a": NaN}\n\ndata: {"a": "\\ud83d"}\n\ndata: {"a": "\xff"}\n\ndata: oops\n\ndata: {"a": 1}\n\n'
    assert Chunks().feed(odd) == [{"a": None}, {"a": "\ufffd"}, {"a": "\ufffd"}, {"a": 1}]


def _strict(response: httpx.Response) -> Any:
    return orjson.loads(response.content)
