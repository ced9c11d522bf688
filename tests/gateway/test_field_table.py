"""Each field of a chat request over a socket: what is taken reaches the model server unchanged, the rest is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.documents import data_url, png
from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, completion, hello
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import IMAGES, USER, GatewayProcess

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
WIDE = "Qwen/Qwen3-30B-A3B-FP8"
# Field: values that are taken, values that are refused.
FIELDS: dict[str, tuple[list[Any], list[Any]]] = {
    "temperature": ([0, 0.5, 2], [-0.1, 2.1, "1", True]),
    "top_p": ([0, 1, 0.3], [-0.1, 1.1, []]),
    "presence_penalty": ([-2, 0, 2], [-2.1, 2.1, "0"]),
    "frequency_penalty": ([-2, 1.5, 2], [-3, 3, {}]),
    "max_tokens": ([1, 10**9], [0, -1, 1.5, "9", True]),
    "response_format": ([{"type": "text"}, {"type": "json_object"}, SCHEMA], [{}, {"type": "xml"}, "json_object", []]),
    "tools": ([[], [TOOL], [TOOL, TOOL]], [{}, ["f"], [{}], "f"]),
    "tool_choice": (["auto", "none", "required", {"type": "function", "function": {"name": "f"}}], [1, [], True]),
    "parallel_tool_calls": ([True, False], ["yes", 1]),
    "reasoning_effort": (["low", "max", "whatever"], [1, ["low"]]),
    "chat_template_kwargs": ([{}, {"enable_thinking": True}, {"any": [1, None]}, "anything"], []),
}
MESSAGES: list[list[Any]] = [
    [{"role": "system", "content": "s"}, USER],
    [{"role": "developer", "content": "passed on to be judged"}, USER],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {}}]}],
    [{"role": "user", "content": "x", "name": "ann", "anything": [1]}],
    [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "4"},
    ],
    [
        USER,
        {"role": "assistant", "tool_calls": [CALL], "reasoning": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ],
    [{"role": "user", "content": ""}],
]
NO_MESSAGES: list[tuple[Any, str]] = [
    ([], "messages"),
    ({}, "messages"),
    ("Hi", "messages"),
    ([7], "messages[0]"),
    ([USER, {"role": "robot", "content": "x"}], "messages[1].role"),
    ([{"content": "x"}], "messages[0].role"),
    ([{"role": "user"}], "messages[0].content"),
    ([{"role": "user", "content": None}], "messages[0].content"),
    ([{"role": "user", "content": 7}], "messages[0].content"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "assistant", "content": None, "tool_calls": []}], "messages[0].content"),
]
DROPPED = [
    "stop", "seed", "n", "user", "logprobs", "top_logprobs", "logit_bias", "top_k", "min_p", "repetition_penalty",
    "max_completion_tokens", "metadata", "store", "functions", "x" * 60,
]  # fmt: skip


def sent(gateway: GatewayProcess, upstream: FakeUpstream, **body: Any) -> Any:
    """What reaches the model server of a request that is taken."""
    upstream.then(replies.answer(completion()))
    response = gateway.ask(**body)
    assert response.status_code == 200, response.text
    return upstream.received[-1].json()


def refused(gateway: GatewayProcess, upstream: FakeUpstream, **body: Any) -> Any:
    response = gateway.ask(**body)
    assert (response.status_code, upstream.received) == (400, [])
    return response.json()["error"]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_is_passed_on_or_named(gateway: GatewayProcess, upstream: FakeUpstream, name: str) -> None:
    taken, wrong = FIELDS[name]
    for value in wrong:
        error = refused(gateway, upstream, **{name: value})
        assert error["param"].startswith(name), value
        assert (error["type"], error["code"]) == ("invalid_request_error", None)
    for value in taken:
        assert sent(gateway, upstream, **{name: value}) == {"model": MODEL, "messages": [USER], name: value}


@pytest.mark.parametrize("name", [*FIELDS, "stream", "stream_options", "reasoning", "thinking"])
def test_null_is_as_if_absent(gateway: GatewayProcess, upstream: FakeUpstream, name: str) -> None:
    assert sent(gateway, upstream, **{name: None}) == {"model": MODEL, "messages": [USER]}


@pytest.mark.parametrize("messages", MESSAGES)
def test_messages_pass_with_all_their_keys(
    gateway: GatewayProcess, upstream: FakeUpstream, messages: list[Any]
) -> None:
    assert sent(gateway, upstream, messages=messages)["messages"] == messages


@pytest.mark.parametrize(("messages", "param"), NO_MESSAGES)
def test_what_is_wrong_in_messages_is_named(
    gateway: GatewayProcess, upstream: FakeUpstream, messages: Any, param: str
) -> None:
    assert refused(gateway, upstream, messages=messages)["param"] == param


def test_a_great_many_messages_pass(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    messages = [USER, {"role": "assistant", "content": "Yes"}] * 20_000
    assert sent(gateway, upstream, messages=messages)["messages"] == messages


def test_images_pass_to_models_that_see(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    picture = {"type": "image_url", "image_url": {"url": data_url(png(8, 8), "image/png"), "detail": "low"}}
    messages = [{"role": "user", "content": [picture]}]
    assert sent(gateway, upstream, model=IMAGES, messages=messages)["messages"] == messages
    upstream.reset()
    error = refused(gateway, upstream, messages=messages)
    assert (error["message"], error["param"]) == (f"Model {MODEL} does not support image input.", "messages")


def test_both_spellings_of_the_effort_are_one_and_not_both(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    error = refused(gateway, upstream, reasoning={"effort": "low"}, reasoning_effort="low")
    assert (error["code"], error["message"]) == (
        "invalid_request",
        "Cannot specify both reasoning_effort and reasoning.effort. Use one or the other.",
    )
    assert sent(gateway, upstream, reasoning={"effort": "low"})["reasoning_effort"] == "low"


@pytest.mark.parametrize("fields", [{"thinking": {"type": "enabled"}}, {"reasoning": {"enabled": False}}])
def test_other_ways_to_think_are_refused(gateway: GatewayProcess, upstream: FakeUpstream, fields: Any) -> None:
    error = refused(gateway, upstream, **fields)
    assert error["code"] == "unsupported_parameter"
    assert "was not applied" in error["message"]


def test_streams_and_their_options(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    for name, value in (("stream", "yes"), ("stream_options", []), ("stream_options", {"include_usage": 1})):
        assert refused(gateway, upstream, **{name: value})["param"].startswith(name)
    upstream.then(replies.stream(*hello()))
    response = gateway.ask(
        stream=True, stream_options={"include_usage": False}, headers={"accept-encoding": "gzip, br"}
    )
    assert response.content.endswith(b"data: [DONE]\n\n")
    assert upstream.received[-1].json()["stream_options"] == {"include_usage": True}
    headers = response.headers
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-cache", "no")
    assert "content-encoding" not in headers


@pytest.mark.parametrize("value", [1, "x", [1], {"a": 1}, True])
def test_anything_else_is_dropped_whatever_its_type_and_named(
    gateway: GatewayProcess, upstream: FakeUpstream, value: Any
) -> None:
    upstream.then(replies.answer(completion()))
    response = gateway.ask(**dict.fromkeys(DROPPED, value))
    assert upstream.received[-1].json() == {"model": MODEL, "messages": [USER]}
    assert response.headers["x-dropped-params"] == ", ".join(sorted(DROPPED))


def test_a_wider_card_takes_more(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    more = {"stop": ["a", "b"], "n": 2, "user": "ann"}
    assert sent(gateway, upstream, model=WIDE, **more) == {"model": WIDE, "messages": [USER]} | more
    assert sent(gateway, upstream, model=WIDE, stop="a")["stop"] == "a"
    upstream.reset()
    for name, value in (("stop", ["a"] * 5), ("n", 0), ("user", 7)):
        assert refused(gateway, upstream, model=WIDE, **{name: value})["param"] == name


def test_the_order_of_checks(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    """JSON, thinking, schema, model, features, and only then what it costs to ask."""
    fields: dict[str, Any] = {"thinking": {}, "temperature": 9, "model": "gpt-7"}
    assert gateway.http.post("/v1/chat/completions", content=b'{"thinking": {}, ').json()["error"]["param"] is None
    assert refused(gateway, upstream, **fields)["param"] == "thinking"
    del fields["thinking"]
    assert refused(gateway, upstream, **fields)["param"] == "temperature"
    del fields["temperature"]
    assert refused(gateway, upstream, **fields)["message"] == "Requested model gpt-7 not supported"
    assert refused(gateway, upstream, model="OmniVoice")["message"] == "Requested model OmniVoice not supported"


def test_model_and_messages_are_required(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    for name in ("model", "messages"):
        assert refused(gateway, upstream, **{name: None})["param"] == name
    assert refused(gateway, upstream, model=7)["param"] == "model"
