"""Streams at their edges: cut at each byte, of every odd shape, and read by clients who take their time."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.replies import DONE, LAST_CHUNK, MODEL, STREAM_HEAD, chunk, chunked, event, hello
from tests.fake_upstream.server import FakeUpstream, Received, Wire
from tests.gateway.gateway_process import USER, GatewayProcess
from tests.services import wait_until

MEBIBYTE = 2**20
LARGE_EVENTS = 64


def calls(*deltas: Any) -> bytes:
    return event(chunk() | {"choices": [{"index": 0, "delta": {"tool_calls": list(deltas)}, "finish_reason": None}]})


# Events that need nothing done, each in a form that some server has.
SHAPES: dict[str, bytes] = {
    "a comment": b": ping\n\n",
    "a comment before data": b": x\n" + event(chunk("a")),
    "an id and an event": b"id: 7\nevent: message\n" + event(chunk("a")),
    "a retry": b"retry: 3000\n\n",
    "data without a blank": b"data:" + event(chunk("a"))[6:],
    "data in two lines": b'data: {"choices": [{"delta":\ndata: {"content": "a"}}], "pad": "%s"}\n\n' % (b"x" * 64),
    "no choices": event({"object": "chat.completion.chunk", "choices": [], "prompt_filter_results": ["x" * 64]}),
    "null choices": event({"object": "chat.completion.chunk", "choices": None, "pad": "x" * 64}),
    "null usage": event(chunk("a", usage=None)),
    "no JSON": b"data: hello " + b"x" * 64 + b"\n\n",
    "characters of every size": event(chunk("é 中 🙂 \u2028 \u0085")),
    "an escaped half of a pair": event(chunk("x" * 64)).replace(b"x" * 64, b"\\ud83d" + b"x" * 64),
    "a call with an odd index": calls({"index": 9, "id": "c", "function": {"name": "f", "arguments": "{"}}),
    "a call without an index": calls({"id": "c", "function": {"name": "f", "arguments": ""}}),
    "a call with a null index": calls({"index": None, "function": {"arguments": "}"}}),
    "two calls in one delta": calls({"index": 1, "function": {"arguments": "a"}}, {"index": 0, "function": {}}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_event_of_this_shape_comes_through_unharmed(
    gateway: GatewayProcess, upstream: FakeUpstream, shape: str
) -> None:
    upstream.then(replies.stream(event(chunk("before")), SHAPES[shape], event(chunk(finish_reason="stop"))))
    response = gateway.ask(stream=True)
    assert response.content == b"".join(
        [event(chunk("before")), SHAPES[shape], event(chunk(finish_reason="stop")), DONE]
    )
    assert gateway.record(response)["outcome"] == "ok"


def test_a_stream_in_pieces_of_one_byte(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    said = event(chunk("é 中 🙂")) + event(chunk(finish_reason="stop")).replace(b"\n", b"\r\n") + DONE
    pieces = [chunked(bytes([byte])) for byte in said]
    upstream.then(replies.raw(STREAM_HEAD, *pieces, LAST_CHUNK))
    assert gateway.ask(stream=True).content == event(chunk("é 中 🙂")) + event(chunk(finish_reason="stop")) + DONE


def test_a_stream_cut_at_any_byte_ends_in_whole_events_and_an_error(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    events = [event(chunk("Hi")), event(chunk("ho")), DONE]
    wire = STREAM_HEAD + b"".join(chunked(one) for one in events) + LAST_CHUNK
    # Before the first byte a pooled connection is replaced by a fresh one; that has tests of its own.
    for cut in range(1, len(wire) + 1):
        upstream.then(replies.raw(wire[:cut], close=True))
        response = gateway.ask(stream=True)
        if cut < len(STREAM_HEAD):
            assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unavailable"), cut
            continue
        # An event is there with its last byte, though the end of its HTTP chunk is not.
        arrived = sum(cut >= len(STREAM_HEAD) + sum(len(chunked(one)) for one in events[:n]) - 2 for n in (1, 2, 3))
        *passed, last = response.content.split(b"\n\n")[:-1]
        assert [*passed, b""] == [*(one.strip() for one in events[: min(arrived, 2)]), b""], cut
        if arrived == 3:
            assert last == b"data: [DONE]"
        else:
            assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "upstream_unavailable", cut


def test_a_whole_answer_cut_at_any_byte_is_a_bad_gateway(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    body = json.dumps(replies.completion("Hi")).encode()
    head = replies.head(content_length=str(len(body)))
    for cut in [*range(1, len(head) + len(body), 7), len(head), len(head) + len(body) - 1]:
        upstream.then(replies.raw((head + body)[:cut], close=True))
        response = gateway.ask()
        assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unavailable"), cut
    upstream.then(replies.raw(head + body, close=True))
    assert gateway.ask().content == body


def test_a_client_that_reads_nothing_holds_the_server_back_and_misses_nothing(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    """64 MiB of events: what nobody reads stays with the model server, not in the gateway's memory."""
    large = event(chunk("x" * MEBIBYTE))
    accepted = 0

    async def pours(request: Received, wire: Wire) -> None:
        nonlocal accepted
        await wire.send(STREAM_HEAD)
        for _ in range(LARGE_EVENTS):
            await wire.send(chunked(large))
            accepted += 1
        await wire.send(chunked(event(chunk(finish_reason="stop"))), chunked(DONE), LAST_CHUNK)

    upstream.then(pours)
    before = _resident_bytes(gateway)
    with socket.create_connection(("127.0.0.1", gateway.web.port), timeout=60) as client:
        body = json.dumps({"model": MODEL, "messages": [USER], "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.secret}\r\n"
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: accepted > 0, what="the first event")
        stands = -1

        def holds_back() -> bool:
            """Other calls go on meanwhile, and it still gets no further."""
            nonlocal stands
            gateway.notices_what_came_before()
            stands, last = accepted, stands
            return stands == last

        wait_until(holds_back, what="the model server being held back")
        assert stands < LARGE_EVENTS // 2
        assert _resident_bytes(gateway) - before < 40 * MEBIBYTE
        received = _read_to_the_end(client)
    assert received.count(b"x" * MEBIBYTE) == LARGE_EVENTS
    assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def _read_to_the_end(client: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"0\r\n\r\n"):
        piece = client.recv(MEBIBYTE)
        assert piece
        received += piece
    return bytes(received)


def _resident_bytes(gateway: GatewayProcess) -> int:
    statm = Path(f"/proc/{gateway.web.process.pid}/statm").read_text()
    return int(statm.split()[1]) * 4096


def test_usage_on_each_chunk_is_kept_from_a_client_who_did_not_ask(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    counted = [event(chunk("a", usage={"prompt_tokens": 3, "completion_tokens": n})) for n in (1, 2)]
    upstream.then(replies.stream(*counted, event(chunk(finish_reason="stop", usage=None))))
    response = gateway.ask(stream=True)
    assert [json.loads(line[6:]) for line in response.text.split("\n\n")[:-2]] == [
        chunk("a"), chunk("a"), chunk(finish_reason="stop", usage=None),
    ]  # fmt: skip
    record = gateway.record(response)
    assert (record["prompt_tokens"], record["completion_tokens"], record["estimated"]) == (3, 2, 0)


def test_two_streams_side_by_side_do_not_mix(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    gates = [upstream.gate(), upstream.gate()]
    for gate, word in zip(gates, ("first", "second"), strict=True):
        upstream.then(replies.paused_stream(gate, [event(chunk(word))], [event(chunk(word)), *hello()[2:], DONE]))
    with gateway.streamed() as one, httpx.Client(base_url=gateway.url, headers=dict(gateway.http.headers)) as other:
        wait_until(gates[0].reached.is_set, what="the first stream")
        body = {"model": MODEL, "messages": [USER], "stream": True}
        with other.stream("POST", "/v1/chat/completions", json=body) as two:
            wait_until(gates[1].reached.is_set, what="the second stream")
            for gate in reversed(gates):
                gate.open()
            texts = [response.read().decode() for response in (two, one)]
    assert [(text.count("first"), text.count("second")) for text in texts] == [(0, 2), (2, 0)]
