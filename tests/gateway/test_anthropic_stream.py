"""Chunks of a chat completion become Anthropic's events, each block closed before the next opens."""

import json
from typing import Any

import pytest

from gateway.anthropic_stream import MessageStream
from gateway.errors import UpstreamUnavailable

type Json = dict[str, Any]

REQUEST_ID = "0192f0c1-1111-7222-8333-444455556666"


def delta(finish_reason: str | None = None, **fields: Any) -> Json:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


def call(index: int | None, arguments: str = "", *, name: str | None = None, id: str | None = None) -> Json:
    piece: Json = {"function": {"arguments": arguments}}
    if index is not None:
        piece["index"] = index
    if name:
        piece["function"]["name"] = name
    if id:
        piece["id"] = id
    return delta(tool_calls=[piece])


def usage(**counts: Any) -> Json:
    return {"choices": [], "usage": counts}


def events(*chunks: Json) -> list[Json]:
    stream = MessageStream(request_id=REQUEST_ID, model="m")
    data = b"".join(stream.feed(chunk) for chunk in chunks) + stream.end()
    found = []
    for event in data.decode().removesuffix("\n\n").split("\n\n"):
        name, text = event.split("\n")
        document = json.loads(text.removeprefix("data: "))
        assert name == f"event: {document['type']}"
        found.append(document)
    return found


def outline(*chunks: Json) -> list[str]:
    """The blocks as `index type text`, checked to be well nested."""
    blocks: list[str] = []
    is_open = False
    found = events(*chunks)
    assert [found[0]["type"], found[-2]["type"], found[-1]["type"]] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    for event in found[1:-2]:
        match event["type"]:
            case "content_block_start":
                assert not is_open
                assert event["index"] == len(blocks)
                is_open = True
                block = event["content_block"]
                blocks.append(f"{event['index']} {block['type']} {block.get('name', '')}".rstrip() + ":")
            case "content_block_delta":
                assert is_open
                assert event["index"] == len(blocks) - 1
                piece = event["delta"]
                blocks[-1] += piece.get("text") or piece.get("thinking") or piece.get("partial_json") or ""
            case "content_block_stop":
                assert is_open
                is_open = False
    assert not is_open
    return blocks


def test_the_order_of_events() -> None:
    found = events(
        delta(role="assistant", content=""),
        delta(reasoning="Hm"),
        delta(content="Hel"),
        delta(content="lo"),
        delta("stop"),
        usage(prompt_tokens=20, completion_tokens=7, prompt_tokens_details={"cached_tokens": 16}),
    )
    assert [event["type"] for event in found] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert found[0]["message"]["id"] == "msg_0192f0c1111172228333444455556666"
    assert found[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert found[2]["delta"] == {"type": "thinking_delta", "thinking": "Hm"}
    assert found[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": {
            "input_tokens": 4,
            "output_tokens": 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 16,
        },
    }


def test_each_chunk_goes_out_at_once() -> None:
    stream = MessageStream(request_id=REQUEST_ID, model="m")
    assert b"message_start" in stream.feed(delta(role="assistant", content=""))
    assert b"text_delta" in stream.feed(delta(content="x"))
    assert b"input_json_delta" not in stream.feed(call(0, name="t", id="c"))
    assert b'"partial_json":"{\\"a"' in stream.feed(call(0, '{"a'))


def test_an_answer_of_nothing_is_still_a_message() -> None:
    assert outline() == []
    assert events(delta("length"))[-2]["delta"]["stop_reason"] == "max_tokens"


def test_calls_one_after_the_other() -> None:
    chunks = [
        delta(content="I look."),
        call(0, name="a", id="c1"),
        call(0, '{"x":'),
        call(0, "1}"),
        call(1, name="b", id="c2"),
        call(1, "{}"),
        delta("tool_calls"),
    ]
    assert outline(*chunks) == ["0 text:I look.", '1 tool_use a:{"x":1}', "2 tool_use b:{}"]
    assert events(*chunks)[-2]["delta"]["stop_reason"] == "tool_use"


def test_mixed_pieces_of_calls_are_put_in_order() -> None:
    assert outline(
        call(0, '{"x"', name="a", id="c1"),
        call(1, '{"y"', name="b", id="c2"),
        call(0, ":1}"),
        call(1, ":2}"),
    ) == ['0 tool_use a:{"x":1}', '1 tool_use b:{"y":2}']


def test_the_same_index_with_another_id_is_another_call() -> None:
    assert outline(call(0, "{}", name="a", id="c1"), call(0, "{}", name="b", id="c2")) == [
        "0 tool_use a:{}",
        "1 tool_use b:{}",
    ]


def test_odd_and_missing_indexes() -> None:
    assert outline(call(7, "{", name="a", id="c1"), call(7, "}"), call(3, "{}", name="b", id="c2")) == [
        "0 tool_use a:{}",
        "1 tool_use b:{}",
    ]
    assert outline(
        call(None, "{", name="a", id="c1"), call(None, "}"), call(None, "{}", name="b", id="c2")
    ) == ["0 tool_use a:{}", "1 tool_use b:{}"]  # fmt: skip


def test_a_call_without_arguments_or_id() -> None:
    found = events(call(0, name="a"))
    assert found[1]["content_block"] == {
        "type": "tool_use",
        "id": "toolu_0192f0c11111722283334444555566660",
        "name": "a",
        "input": {},
    }


def test_text_between_and_inside_calls_is_kept() -> None:
    assert outline(call(0, "{}", name="a", id="c1"), delta(content="then"), call(1, "{}", name="b", id="c2")) == [
        "0 tool_use a:{}",
        "1 text:then",
        "2 tool_use b:{}",
    ]
    assert outline(call(0, "{", name="a", id="c1"), delta(content="meanwhile"), call(0, "}")) == [
        "0 tool_use a:{}",
        "1 text:meanwhile",
    ]


def test_thinking_again_after_text_is_a_new_block() -> None:
    assert outline(delta(reasoning="a"), delta(content="b"), delta(reasoning="c")) == [
        "0 thinking:a",
        "1 text:b",
        "2 thinking:c",
    ]


def test_the_older_name_of_thinking() -> None:
    assert outline(delta(reasoning_content="a")) == ["0 thinking:a"]


def test_a_refusal() -> None:
    assert events(delta(refusal="No."), delta("stop"))[-2]["delta"]["stop_reason"] == "refusal"


def test_cumulative_usage_counts_its_last() -> None:
    chunks = [{**delta(content="x"), "usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in (1, 2, 3)]
    found = events(*chunks)
    assert found[0]["message"]["usage"]["input_tokens"] == 5
    assert found[-2]["usage"]["output_tokens"] == 3


def test_a_failure_in_the_stream() -> None:
    stream = MessageStream(request_id=REQUEST_ID, model="m")
    stream.feed(delta(content="x"))
    name, data = stream.error(UpstreamUnavailable("It broke.")).decode().strip().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "error",
        "error": {"type": "api_error", "message": "It broke."},
        "request_id": REQUEST_ID,
    }


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        delta(content=3, reasoning=[], tool_calls="x"),
        delta(tool_calls=[None, {"function": 3}, {"index": {}}]),
        {"usage": "x"},
    ],
)
def test_strange_chunks_do_no_harm(chunk: Json) -> None:
    assert events(chunk)[-1] == {"type": "message_stop"}
