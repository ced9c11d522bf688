"""The stream: one token a chunk, usage where asked for, and the same answer as without it."""

import pytest

from gateway.demo.tokens import count
from tests.gateway.demo.client import Demo, user

MODELS = ["DeepSeek-V4-Flash", "Qwen3.8-27B", "GLM-5.3-Flash", "MiMo-V2.6-Flash", "Gemma-4-31B-IT"]


@pytest.mark.parametrize("model", MODELS)
def test_streams_what_it_would_have_answered_at_once(demo: Demo, model: str) -> None:
    whole = demo.message(model=model)
    streamed = demo.stream(model=model)
    assert streamed.ended
    assert streamed.joined("content") == whole["content"]
    assert streamed.finish_reasons == ["stop"]
    assert streamed.deltas[0] == {"role": "assistant", "content": ""}
    assert len({event["id"] for event in streamed.events}) == 1


def test_each_chunk_carries_one_token(demo: Demo) -> None:
    streamed = demo.stream(messages=[user("你好，世界 🎉 [[tokens=60]]")])
    pieces = [delta["content"] for delta in streamed.deltas[1:-1]]
    assert len(pieces) == 60
    assert {count(piece) for piece in pieces} == {1}


def test_no_usage_unless_asked_for(demo: Demo) -> None:
    streamed = demo.stream()
    assert all("usage" not in event for event in streamed.events)


def test_usage_comes_in_a_chunk_of_its_own_at_the_end(demo: Demo) -> None:
    streamed = demo.stream(messages=[user("Hi [[tokens=9]]")], stream_options={"include_usage": True})
    assert [event["choices"] == [] for event in streamed.events] == [False] * 11 + [True]
    assert streamed.events[-1]["usage"]["completion_tokens"] == 9
    assert all("usage" not in event for event in streamed.events[:-1])


def test_continuous_usage_is_on_every_chunk_and_grows_by_one(demo: Demo) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    streamed = demo.stream(messages=[user("Hi [[tokens=9]]")], stream_options=options)
    grown = [event["usage"]["completion_tokens"] for event in streamed.events]
    assert grown == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9]


def test_continuous_usage_needs_include_usage(demo: Demo) -> None:
    streamed = demo.stream(stream_options={"continuous_usage_stats": True})
    assert all("usage" not in event for event in streamed.events)


def test_a_refusal_is_plain_json_though_a_stream_was_asked_for(demo: Demo) -> None:
    response = demo.post(model="Qwen3.8-27B", stream=True, reasoning_effort="high")
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


def test_max_tokens_ends_the_stream_with_length(demo: Demo) -> None:
    streamed = demo.stream(max_tokens=7, stream_options={"include_usage": True})
    assert streamed.finish_reasons == ["length"]
    assert count(streamed.joined("content")) == 7
    assert streamed.events[-1]["usage"]["completion_tokens"] == 7


WIDE = "Qwen/Qwen3-30B-A3B-FP8"


def test_several_choices_side_by_side(demo: Demo) -> None:
    streamed = demo.stream(model=WIDE, n=3, messages=[user("Hi [[tokens=4]]")], stream_options={"include_usage": True})
    indexes = [choice["index"] for event in streamed.events for choice in event["choices"]]
    assert indexes == [0, 1, 2] * 6
    assert streamed.finish_reasons == ["stop"] * 3
    assert streamed.events[-1]["usage"]["completion_tokens"] == 12


def test_n_choices_at_once_differ(demo: Demo) -> None:
    answer = demo.complete(model=WIDE, n=2)
    first, second = (choice["message"]["content"] for choice in answer["choices"])
    assert first != second
    assert answer["usage"]["completion_tokens"] == count(first) + count(second)


@pytest.mark.parametrize("stop", ["demo", ["zebra", "demo"]])
def test_stop_cuts_before_the_sequence(demo: Demo, stop: str | list[str]) -> None:
    whole = demo.message(model=WIDE)["content"]
    answer = demo.complete(model=WIDE, stop=stop)
    content = answer["choices"][0]["message"]["content"]
    assert content == whole.split("demo")[0]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == count(content)
