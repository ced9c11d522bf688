"""`POST /v1/chat/completions` over real sockets: what clients see, what the model server sees, what is recorded."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import httpx2
import openai
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, USAGE, chunk, completion, event, hello, usage_chunk
from tests.fake_upstream.server import FakeUpstream, Gate, Received, Reply, Wire
from tests.gateway.gateway_process import DEAD, ENGINE, RENAMED, REPLICATED, USER, GatewayProcess
from tests.services import wait_until

OK = replies.answer(completion())


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    return error


def data_of(text: str) -> list[Any]:
    """The data of each event, parsed but for `[DONE]`."""
    found = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [data if data == "[DONE]" else json.loads(data) for data in found]


def tokens(record: dict[str, Any]) -> tuple[int, int, int]:
    return record["prompt_tokens"], record["completion_tokens"], record["estimated"]


# -- whole answers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/v1/chat/completions"])
def test_a_whole_answer_comes_through_byte_for_byte(gateway: GatewayProcess, upstream: FakeUpstream, path: str) -> None:
    body = json.dumps(completion("line\u2028end 🙂", system_fingerprint="x"), indent=3).encode()
    upstream.then(replies.answer(body))
    response = gateway.ask(path=path)
    assert (response.status_code, response.content) == (200, body)
    assert response.headers["content-type"] == "application/json"
    assert "x-dropped-params" not in response.headers


def test_what_the_model_server_is_sent(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(OK)
    response = gateway.ask(
        temperature=0.5, seed=1, reasoning={"effort": "low"}, headers={"cookie": "a=b", "user-agent": "x", "x-a": "y"}
    )
    (request,) = upstream.received
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.json() == {"model": MODEL, "messages": [USER], "temperature": 0.5, "reasoning_effort": "low"}
    assert request.headers == {
        "host": f"127.0.0.1:{upstream.port}", "content-type": "application/json",
        "authorization": "Bearer sk-upstream-secret", "x-request-id": response.headers["x-request-id"],
        "content-length": str(len(request.body)),
    }  # fmt: skip


def test_the_record_of_a_whole_answer(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    usage = USAGE | {
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    upstream.then(replies.answer(completion(usage=usage)))
    response = gateway.ask()
    record = gateway.record(response)
    times = [record.pop(name) for name in ("started_at", "first_byte_at", "finished_at")]
    assert times == sorted(times)
    assert record == {
        "id": response.headers["x-request-id"].replace("-", ""), "team_id": 1, "key_id": 1, "member_id": 1,
        "model": MODEL, "endpoint": "chat", "source": "api", "upstream": "plain", "upstream_id": "chatcmpl-1",
        "status": 200, "outcome": "ok", "error_code": "", "stream": 0, "finish_reason": "stop", "prompt_tokens": 11,
        "cached_tokens": 5, "completion_tokens": 7, "reasoning_tokens": 3, "image_tokens": 0, "pages": 0,
        "characters": 0, "usage": usage, "estimated": 0, "bytes_out": len(response.content), "rated_at": None,
        "unpriced": 0,
    }  # fmt: skip


def test_what_a_server_calls_its_model_and_its_thinking_does_not_show(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Hmm"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    upstream.then(replies.answer(completion(model="qwen-inside", choices=[choice])))
    answer = gateway.ask(model=RENAMED).json()
    assert answer["model"] == RENAMED
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "Hi", "reasoning": "Hmm"}
    assert upstream.received[0].json()["model"] == "qwen-inside"


def test_ids_that_a_server_repeats_make_records_of_their_own(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(OK, OK)
    records = [gateway.record(gateway.ask()) for _ in range(2)]
    assert records[0]["id"] != records[1]["id"]
    assert {record["upstream_id"] for record in records} == {"chatcmpl-1"}


def test_an_answer_without_usage_is_estimated(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(completion("word " * 100, usage=None)))
    response = gateway.ask()
    assert response.json()["usage"] is None
    prompt_tokens = len(upstream.received[0].body) // 4
    assert tokens(gateway.record(response)) == (prompt_tokens, 1 + len(response.content) // 4, 1)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b"[1, 2]", b'{"half": '])
def test_an_answer_that_is_no_json_object_is_a_bad_gateway(
    gateway: GatewayProcess, upstream: FakeUpstream, body: bytes
) -> None:
    upstream.then(replies.answer(body))
    response = gateway.ask()
    assert response.status_code == 502
    assert error_of(response) == {
        "message": "The model server's answer was not JSON.", "type": "api_error", "param": None,
        "code": "upstream_unavailable",
    }  # fmt: skip
    record = gateway.record(response)
    assert (record["status"], record["outcome"], record["error_code"]) == (502, "error", "upstream_unavailable")


def test_one_request_is_one_record_and_a_refused_one_none(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(OK, OK, replies.answer({"error": "no"}, status=400), OK)
    first = gateway.ask()
    assert gateway.ask(temperature=9).status_code == 400
    counted = [gateway.ask() for _ in range(3)]
    for response in counted:
        gateway.record(response)
    assert gateway.records_since(first) == [response.headers["x-request-id"].replace("-", "") for response in counted]


def test_dropped_parameters_are_named_harmlessly(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(OK, OK)
    assert gateway.ask(stop=["a"], seed=None, top_k={"a": 1}).headers["x-dropped-params"] == "seed, stop, top_k"
    hostile: dict[str, Any] = {"a\r\nset-cookie: b": 1, "é🙂": 1, "x, y": 1, "h" * 10_000: 1, "": 1}
    response = gateway.ask(**hostile)
    assert response.status_code == 200
    assert "set-cookie" not in response.headers
    names = response.headers["x-dropped-params"].split(", ")
    assert sorted(names) == ["", "??", "a??set-cookie:?b", "h" * 64, "x??y"]
    assert len(upstream.received[1].json()) == 2


def test_a_great_many_dropped_parameters_fit_a_header(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(OK)
    many: dict[str, Any] = {f"{number:04}" + "x" * 60: 1 for number in range(3000)}
    named = gateway.ask(**many).headers["x-dropped-params"]
    assert len(named) < 4000


# -- what the gateway refuses ------------------------------------------------------------------------


def test_malformed_json_and_hostile_json_are_a_400(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    deep = b'{"model": "%s", "messages": [{"role": "user", "content": "x"}], "tools": ' % MODEL.encode()
    bodies = [b"", b"{", b'{"a": NaN}', b'{"a": "\\ud800"}', deep + b"[" * 1025 + b"]" * 1025 + b"}"]
    for body in bodies:
        response = gateway.http.post("/v1/chat/completions", content=body)
        assert (response.status_code, error_of(response)["message"]) == (400, "Malformed JSON in request body")
    template = deep.replace(b'"tools"', b'"chat_template_kwargs"')
    response = gateway.http.post("/v1/chat/completions", content=template + b"[" * 300 + b"]" * 300 + b"}")
    assert (response.status_code, error_of(response)["message"]) == (400, "The request body is nested too deeply")
    assert upstream.received == []


def test_an_error_names_its_field(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    response = gateway.ask(temperature=3)
    assert response.status_code == 400
    assert error_of(response) == {
        "message": "temperature must be a number from 0 to 2", "type": "invalid_request_error", "param": "temperature",
        "code": None,
    }  # fmt: skip
    assert error_of(gateway.ask(model="nope"))["message"] == "Requested model nope not supported"
    assert error_of(gateway.ask(model="MinerU2.5-Pro"))["message"] == "Requested model MinerU2.5-Pro not supported"
    assert error_of(gateway.ask(thinking={"type": "enabled"}))["code"] == "unsupported_parameter"
    assert upstream.received == []


def test_a_body_of_20_mib_passes_and_a_byte_more_does_not(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(OK, OK)
    limit = 20 * 1024 * 1024
    bare = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": ""}]}).encode()
    body = bare.replace(b'"content": ""', b'"content": "%s"' % (b"x" * (limit - len(bare))))
    assert len(body) == limit

    def pieces(data: bytes) -> Any:
        return (data[start : start + 1_000_000] for start in range(0, len(data), 1_000_000))

    # With its length announced, and in chunks without.
    for content, status in [(body, 200), (body + b" ", 413), (pieces(body), 200), (pieces(body + b" "), 413)]:
        response = gateway.http.post("/v1/chat/completions", content=content)
        assert response.status_code == status
        if status == 413:
            assert error_of(response) == {
                "message": "The request body is larger than 20 MiB", "type": "invalid_request_error", "param": None,
                "code": "request_too_large",
            }  # fmt: skip


def test_a_client_that_leaves_within_its_request_does_no_harm(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    with socket.create_connection(("127.0.0.1", gateway.web.port)) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.secret}\r\n"
        client.sendall(f"{head}content-length: 500\r\n\r\n{{".encode())
        gateway.notices_what_came_before()
    gateway.notices_what_came_before()
    upstream.then(OK)
    assert gateway.ask().status_code == 200
    assert "Traceback" not in (gateway.installation.folder / "web.log").read_text()


# -- what the model server refuses -------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "body", "content_type", "headers"),
    [
        (400, b'{"error": {"message": "context too long", "code": 400}}', "application/json", {}),
        (401, b'{"detail":  "who are you?"}', "application/json", {}),
        (404, b"", "application/json", {}),
        (422, "messages[0]: unknown role: développeur".encode(), "text/plain; charset=utf-8", {}),
        (429, b'{"error": "slow down"}', "application/json", {"retry_after": "17"}),
        (500, b"\x00\xff not text", "application/octet-stream", {}),
        (503, b"busy", "text/plain", {"retry_after": "3"}),
    ],
)
def test_a_servers_own_error_keeps_status_and_body(
    gateway: GatewayProcess, upstream: FakeUpstream, stream: bool, status: int, body: bytes, content_type: str,
    headers: dict[str, str],
) -> None:  # fmt: skip
    upstream.then(
        replies.raw(replies.head(status, content_type=content_type, content_length=str(len(body)), **headers), body)
    )
    response = gateway.ask(stream=stream, seed=1)
    assert (response.status_code, response.content) == (status, body)
    assert response.headers["content-type"] == content_type
    assert response.headers.get("retry-after") == headers.get("retry_after")
    record = gateway.record(response)
    assert (record["status"], record["outcome"], record["error_code"]) == (status, "error", str(status))
    assert tokens(record) == (0, 0, 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_dead_server_is_a_bad_gateway(gateway: GatewayProcess, upstream: FakeUpstream, stream: bool) -> None:
    response = gateway.ask(model=DEAD, stream=stream)
    assert response.status_code == 502
    assert error_of(response) == {
        "message": "The model server cannot be reached.", "type": "api_error", "param": None,
        "code": "upstream_unavailable",
    }  # fmt: skip
    record = gateway.record(response)
    assert (record["status"], record["outcome"], record["upstream"]) == (502, "error", "dead")
    assert tokens(record) == (0, 0, 0)


@pytest.mark.parametrize(
    "reply", [replies.hang_up_at_once(), replies.raw(b"HTTP/1.1 200 OK\r\ncontent-len", close=True)]
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_breaks_off_before_its_answer_is_a_bad_gateway(
    gateway: GatewayProcess, upstream: FakeUpstream, stream: bool, reply: Reply
) -> None:
    upstream.then(reply, reply)
    response = gateway.ask(model=ENGINE, stream=stream)
    assert (response.status_code, error_of(response)["code"]) == (502, "upstream_unavailable")
    assert gateway.record(response)["outcome"] == "error"


def test_a_whole_answer_that_breaks_off_is_a_bad_gateway(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.raw(replies.head(content_length="500"), b'{"id": "x"', close=True))
    response = gateway.ask()
    assert response.status_code == 502
    assert gateway.record(response)["status"] == 502


def test_a_dead_replica_is_passed_over_without_the_client_noticing(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(completion(model=REPLICATED)), replies.answer(completion(model=REPLICATED)))
    records = [gateway.record(gateway.ask(model=REPLICATED)) for _ in range(2)]
    assert [(record["status"], record["upstream"]) for record in records] == [(200, "replica 2")] * 2


# -- streams -----------------------------------------------------------------------------------------


def test_a_stream_comes_through_byte_for_byte(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    events = [event(chunk("line\u2028end 🙂")), *hello(usage=None)]
    upstream.then(replies.stream(*events, event(usage_chunk())))
    response = gateway.ask(stream=True)
    assert response.status_code == 200
    assert response.content == b"".join(events) + replies.DONE
    assert upstream.received[0].json()["stream_options"] == {"include_usage": True}
    expected = {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    assert {name: response.headers.get(name) for name in expected} == expected
    assert "content-encoding" not in response.headers


def test_the_record_of_a_stream(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    usage = USAGE | {"prompt_tokens_details": {"multimodal_tokens": {"image": 4}}}
    upstream.then(replies.stream(*hello(usage=usage)))
    response = gateway.ask(stream=True)
    record = gateway.record(response)
    times = [record.pop(name) for name in ("started_at", "first_byte_at", "finished_at")]
    assert times == sorted(times)
    said = response.content.removesuffix(replies.DONE)
    assert record == {
        "id": response.headers["x-request-id"].replace("-", ""), "team_id": 1, "key_id": 1, "member_id": 1,
        "model": MODEL, "endpoint": "chat", "source": "api", "upstream": "plain", "upstream_id": "chatcmpl-1",
        "status": 200, "outcome": "ok", "error_code": "", "stream": 1, "finish_reason": "stop", "prompt_tokens": 11,
        "cached_tokens": 0, "completion_tokens": 7, "reasoning_tokens": 0, "image_tokens": 4, "pages": 0,
        "characters": 0, "usage": usage, "estimated": 0, "bytes_out": len(said), "rated_at": None, "unpriced": 0,
    }  # fmt: skip


@pytest.mark.parametrize("asked", [True, False])
def test_the_usage_chunk_is_for_those_who_ask(gateway: GatewayProcess, upstream: FakeUpstream, asked: bool) -> None:
    upstream.then(replies.stream(*hello()))
    response = gateway.ask(stream=True, stream_options={"include_usage": asked})
    assert (usage_chunk() in data_of(response.text)) is asked
    assert tokens(gateway.record(response)) == (11, 7, 0)


def test_a_stream_is_renamed_as_a_whole_answer_is(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    thought = chunk(choices=[{"index": 0, "delta": {"reasoning_content": "Hmm"}}], model="qwen-inside")
    upstream.then(replies.stream(event(thought), event(chunk(finish_reason="stop", model="qwen-inside"))))
    seen = data_of(gateway.ask(stream=True, model=RENAMED).text)
    assert [document["model"] for document in seen[:-1]] == [RENAMED, RENAMED]
    assert seen[0]["choices"][0]["delta"] == {"reasoning": "Hmm"}


def test_usage_on_every_chunk_is_asked_of_engines_and_kept_from_clients(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    counted = [chunk(f"{n}", model=ENGINE, usage={"prompt_tokens": 4, "completion_tokens": n}) for n in (1, 2)]
    upstream.then(replies.stream(*map(event, counted), event(chunk(finish_reason="length", model=ENGINE))))
    response = gateway.ask(stream=True, model=ENGINE)
    assert upstream.received[0].json()["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert data_of(response.text)[:2] == [chunk("1", model=ENGINE), chunk("2", model=ENGINE)]
    assert tokens(gateway.record(response)) == (4, 2, 0)


def test_each_chunk_is_sent_at_once(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    gates = [upstream.gate() for _ in range(3)]
    said = [event(chunk(word)) for word in ("a", "b", "c")]

    async def one_by_one(request: Received, wire: Wire) -> None:
        await wire.send(replies.STREAM_HEAD)
        for data, gate in zip(said, gates, strict=True):
            await wire.send(replies.chunked(data))
            await gate.wait()
        await wire.send(
            replies.chunked(event(chunk(finish_reason="stop"))), replies.chunked(replies.DONE), replies.LAST_CHUNK
        )

    upstream.then(one_by_one)
    with gateway.streamed() as response:
        pieces = response.iter_bytes()
        for data, gate in zip(said, gates, strict=True):
            assert next(pieces) == data
            gate.open()
        assert b"".join(pieces).endswith(replies.DONE)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_server_may_cut_and_end_its_lines_as_it_likes(
    gateway: GatewayProcess, upstream: FakeUpstream, size: int
) -> None:
    said = b"".join([b": hello\n\n", event(chunk("é🙂\u2028")), b"id: 1\n" + event(chunk("b")), *hello(usage=None)])
    crlf = (said + event(usage_chunk()) + replies.DONE).replace(b"\n", b"\r\n")
    pieces = [replies.chunked(crlf[start : start + size]) for start in range(0, len(crlf), size)]
    upstream.then(replies.raw(replies.STREAM_HEAD, *pieces, replies.LAST_CHUNK))
    response = gateway.ask(stream=True)
    assert response.content.replace(b"\r\n", b"\n") == said + replies.DONE
    assert tokens(gateway.record(response)) == (11, 7, 0)


def test_an_event_of_8_mib_comes_through(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    long = event(chunk("x" * 8 * 1024 * 1024))
    upstream.then(replies.stream(long, *hello(usage=None)))
    assert gateway.ask(stream=True).content == long + b"".join(hello(usage=None)) + replies.DONE


def test_a_stream_that_ends_without_done_is_whole_when_it_said_why_it_ends(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(replies.stream(*hello(), done=False))
    response = gateway.ask(stream=True)
    assert response.content.endswith(replies.DONE)
    assert gateway.record(response)["outcome"] == "ok"


def test_a_stream_until_the_connection_ends(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    head = replies.head(content_type="text/event-stream", connection="close")
    upstream.then(replies.raw(head, *hello(), replies.DONE, close=True))
    response = gateway.ask(stream=True)
    assert response.content == b"".join(hello(usage=None)) + replies.DONE
    assert gateway.record(response)["outcome"] == "ok"


def test_output_without_usage_is_counted_by_its_chunks(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.stream(*hello(usage=None)))
    record = gateway.record(gateway.ask(stream=True))
    assert tokens(record) == (len(upstream.received[0].body) // 4, 3, 1)


@pytest.mark.parametrize(
    ("reply", "message", "code"),
    [
        (replies.cut_stream(event(chunk("Hi"))), None, "upstream_unavailable"),
        (replies.cut_stream(event(chunk("Hi")), then=event(chunk("half"))[:40]), None, "upstream_unavailable"),
        (replies.stream(event(chunk("Hi")), done=False), None, "upstream_unavailable"),
        (
            replies.raw(replies.head(content_type="text/event-stream", connection="close"),
                        event(chunk("Hi")) + event(chunk("half"))[:40], close=True),
            None, "upstream_unavailable",
        ),
        (replies.stream(event(chunk("Hi")), event({"error": {"message": "no memory"}})), "no memory", "upstream_error"),
        (replies.silence_after(replies.STREAM_HEAD, replies.chunked(event(chunk("Hi"))), b"no chunk\r\n"), None,
         "upstream_unavailable"),
    ],
)  # fmt: skip
def test_a_stream_that_fails_ends_in_an_error_and_without_done(
    gateway: GatewayProcess, upstream: FakeUpstream, reply: Reply, message: str | None, code: str
) -> None:
    upstream.then(reply)
    response = gateway.ask(stream=True)
    assert response.status_code == 200
    first, last = data_of(response.text)
    assert first == chunk("Hi")
    assert last["error"]["message"] == (message or "The model server ended the stream before the answer was complete.")
    assert (last["error"]["type"], last["error"]["code"]) == ("api_error", code)
    record = gateway.record(response)
    assert (record["status"], record["outcome"], record["error_code"]) == (200, "error", code)
    assert (record["completion_tokens"], record["estimated"]) == (1, 1)


def test_connections_to_the_server_are_used_again_after_whole_streams(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(*[replies.stream(*hello())] * 3)
    for _ in range(3):
        # The next request must find the connection given back, which happens just after the record.
        gateway.record(gateway.ask(stream=True))
        gateway.notices_what_came_before()
    assert len({request.connection for request in upstream.received}) == 1


# -- clients that leave ------------------------------------------------------------------------------


def leave_within_stream(gateway: GatewayProcess, **body: Any) -> str:
    """Read one chunk, then close the connection; the request id."""
    with gateway.streamed(**body) as response:
        assert next(response.iter_bytes())
        request_id: str = response.headers["x-request-id"]
    gateway.notices_what_came_before()
    return request_id


def test_a_stream_whose_client_left_is_read_to_its_end_and_counted_exactly(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, hello()[:1], [*hello()[1:], replies.DONE]))
    request_id = leave_within_stream(gateway)
    gate.open()
    record = gateway.record_of(request_id)
    assert (record["outcome"], record["status"]) == ("client_gone", 200)
    assert tokens(record) == (11, 7, 0)
    assert upstream.hangups == []


def test_an_engine_is_stopped_when_the_client_leaves_and_its_last_count_is_billed(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    counted = [event(chunk(f"{n}", usage={"prompt_tokens": 4, "completion_tokens": n})) for n in (1, 2, 3)]
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(b"".join(counted))))
    record = gateway.record_of(leave_within_stream(gateway, model=ENGINE))
    assert (record["outcome"], record["status"]) == ("client_gone", 200)
    assert tokens(record) == (4, 3, 0)
    wait_until(lambda: upstream.hangups, what="the engine being hung up on")


def test_an_engine_is_stopped_when_the_client_leaves_before_the_first_byte(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(replies.silence_after())
    body = json.dumps({"model": ENGINE, "messages": [USER], "stream": True})
    with socket.create_connection(("127.0.0.1", gateway.web.port)) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.secret}\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        wait_until(lambda: upstream.received, what="the engine being asked")
    wait_until(lambda: upstream.hangups, what="the engine being hung up on")
    record = gateway.record_of(upstream.received[0].headers["x-request-id"])
    assert (record["outcome"], record["status"]) == ("client_gone", 499)
    assert tokens(record) == (0, 0, 0)


def test_a_whole_answer_whose_client_left_is_finished_and_metered(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()
    body = json.dumps(completion()).encode()
    upstream.then(replies.paused_stream(gate, [body[:20]], [body[20:]]))
    document = json.dumps({"model": MODEL, "messages": [USER]})
    with socket.create_connection(("127.0.0.1", gateway.web.port)) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.secret}\r\n"
        client.sendall(f"{head}content-length: {len(document)}\r\n\r\n{document}".encode())
        wait_until(gate.reached.is_set, what="the server being asked")
    gateway.notices_what_came_before()
    gate.open()
    record = gateway.record_of(upstream.received[0].headers["x-request-id"])
    assert (record["outcome"], record["status"]) == ("ok", 200)
    assert tokens(record) == (11, 7, 0)


def test_draining_ends_at_its_limit_with_an_estimate(impatient: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD, *map(replies.chunked, hello()[:2])))
    record = impatient.record_of(leave_within_stream(impatient))
    assert record["outcome"] == "client_gone"
    assert (record["completion_tokens"], record["estimated"]) == (2, 1)
    wait_until(lambda: upstream.hangups, what="the server being hung up on")


# -- silence -----------------------------------------------------------------------------------------


def test_silence_before_a_whole_answer_is_a_time_out(impatient: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after())
    response = impatient.ask()
    assert response.status_code == 504
    assert error_of(response) == {
        "message": "The model server was silent for too long.", "type": "timeout_error", "param": None,
        "code": "timeout",
    }  # fmt: skip
    record = impatient.record(response)
    assert (record["status"], record["outcome"], record["error_code"]) == (504, "error", "timeout")


def test_a_whole_answer_that_trickles_is_a_time_out_too(impatient: GatewayProcess, upstream: FakeUpstream) -> None:
    """Each byte comes well within the time; all of them together do not."""

    async def trickle(request: Received, wire: Wire) -> None:
        await wire.send(replies.head(content_length="1000000"))
        while True:
            await wire.send(b" ")
            await asyncio.sleep(0.05)

    upstream.then(trickle)
    response = impatient.ask()
    assert (response.status_code, error_of(response)["code"]) == (504, "timeout")


def test_silence_within_a_stream_is_bridged_and_then_a_time_out(
    impatient: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(event(chunk("Hi")))))
    response = impatient.ask(stream=True)
    first, *comments, last = response.content.split(b"\n\n")[:-1]
    assert first + b"\n\n" == event(chunk("Hi"))
    assert set(comments) == {b": keep-alive"}
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "timeout"
    record = impatient.record(response)
    assert (record["outcome"], record["error_code"]) == ("error", "timeout")
    assert record["bytes_out"] == len(event(chunk("Hi")))


class OpensGate(httpx2.BaseTransport):
    """Lets the server go on once a keep-alive has reached the client."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._inner = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._inner.handle_request(request)
        response.stream = _Watched(response.stream, self._gate)
        return response

    def close(self) -> None:
        self._inner.close()


class _Watched(httpx2.SyncByteStream):
    def __init__(self, stream: Any, gate: Gate) -> None:
        self._stream = stream
        self._gate = gate

    def __iter__(self) -> Iterator[bytes]:
        for data in self._stream:
            if b": keep-alive\n\n" in data:
                self._gate.open()
            yield data

    def close(self) -> None:
        self._stream.close()


def test_the_official_client_survives_keep_alives(impatient: GatewayProcess, upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, hello()[:1], [*hello()[1:], replies.DONE]))
    with httpx2.Client(transport=OpensGate(gate)) as http:
        client = openai.OpenAI(
            base_url=f"{impatient.url}/v1", api_key=impatient.secret, http_client=http, max_retries=0
        )
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
    assert "".join(one.choices[0].delta.content or "" for one in chunks if one.choices) == "Hello"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7


# -- when the database is away -----------------------------------------------------------------------


def test_requests_go_on_while_the_database_is_away_and_their_records_follow(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    upstream.then(*[OK] * 6)
    gateway.record(gateway.ask())
    with gateway.without_table():
        responses = [gateway.ask() for _ in range(5)]
        assert {response.status_code for response in responses} == {200}
        wait_until(
            lambda: "usage records wait in the journal" in (gateway.installation.folder / "web.log").read_text(),
            what="the gateway noticing",
        )
    assert [gateway.record(response)["outcome"] for response in responses] == ["ok"] * 5
