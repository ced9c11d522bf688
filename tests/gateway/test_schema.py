"""The chat request, field by field: what is accepted, what is refused and how, what is dropped."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.catalog import Model, load
from gateway.errors import InvalidRequest
from gateway.model_card import unknown_model
from gateway.schema import ChatRequest, parse_chat_request, parse_json_object, to_json

CATALOG = load()
MODEL = "DeepSeek-V4-Flash"
SEES = "DeepSeek-V4.1-Flash"
DOUBLEWORD = "Qwen/Qwen3-30B-A3B-FP8"
USER = {"role": "user", "content": "Hello"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def parse(document: dict[str, Any], *, catalog: dict[str, Model] | None = None) -> ChatRequest:
    return parse_chat_request(document, find_model=(catalog or CATALOG).get)


def parse_with(**fields: Any) -> ChatRequest:
    return parse({"model": MODEL, "messages": [USER]} | fields)


def refusal(document: dict[str, Any], *, catalog: dict[str, Model] | None = None) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse(document, catalog=catalog)
    assert caught.value.status == 400
    return caught.value


def refusal_with(**fields: Any) -> InvalidRequest:
    return refusal({"model": MODEL, "messages": [USER]} | fields)


# -- accepted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", True),
        ("stream", False),
        ("temperature", 0),
        ("temperature", 2),
        ("temperature", 0.7),
        ("top_p", 0),
        ("top_p", 1),
        ("presence_penalty", -2),
        ("presence_penalty", 2),
        ("frequency_penalty", -2.0),
        ("frequency_penalty", 2.0),
        ("max_tokens", 1),
        ("max_tokens", 10**12),
        ("response_format", {"type": "text"}),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}),
        ("tools", []),
        ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
        ("tool_choice", "auto"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}),
        ("parallel_tool_calls", True),
        ("reasoning_effort", "low"),
        ("reasoning_effort", "a tier nobody has"),
        ("chat_template_kwargs", {"enable_thinking": True, "more": [1, None]}),
        ("chat_template_kwargs", "anything"),
    ],
)
def test_accepted_fields_go_on_unchanged(name: str, value: Any) -> None:
    request = parse_with(**{name: value})
    assert request.body == {"model": MODEL, "messages": [USER], name: value}
    assert request.dropped == []


def test_the_body_is_rebuilt_in_the_order_it_came() -> None:
    request = parse({"temperature": 1, "messages": [USER], "seed": 4, "model": MODEL, "max_tokens": 5})
    assert list(request.body) == ["temperature", "messages", "model", "max_tokens"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "ann"},
        {"role": "user", "content": [{"type": "a kind of part nobody knows", "x": 1}]},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": "Hi", "reasoning": "thought", "anything": {"else": 1}},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "assistant", "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
    ],
)
def test_messages_go_on_with_all_their_keys(message: dict[str, Any]) -> None:
    assert parse_with(messages=[message]).body["messages"] == [message]


@pytest.mark.parametrize(
    "name",
    [
        "stream", "stream_options", "temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty",
        "response_format", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort", "reasoning", "thinking",
        "chat_template_kwargs",
    ],
)  # fmt: skip
def test_null_is_as_if_absent(name: str) -> None:
    request = parse_with(**{name: None})
    assert request.body == {"model": MODEL, "messages": [USER]}
    assert request.dropped == []
    assert not request.stream


def test_both_shapes_of_effort_reach_the_backend_as_one() -> None:
    assert parse_with(reasoning={"effort": "low"}).body == {
        "model": MODEL,
        "messages": [USER],
        "reasoning_effort": "low",
    }
    assert parse_with(reasoning={"effort": None}, reasoning_effort="high").body["reasoning_effort"] == "high"
    assert "reasoning" not in parse_with(reasoning={}).body


@pytest.mark.parametrize(
    ("stream", "options", "include_usage"),
    [
        (True, {"include_usage": True}, True),
        (True, {"include_usage": False}, False),
        (True, {"include_usage": None}, False),
        (True, {}, False),
        (False, {"include_usage": True}, False),
    ],
)
def test_stream_options_are_read_and_not_forwarded(stream: bool, options: dict[str, Any], include_usage: bool) -> None:
    request = parse_with(stream=stream, stream_options=options)
    assert request.include_usage is include_usage
    assert "stream_options" not in request.body


# -- refused -----------------------------------------------------------------------------------------

TEXT, NUMBER, FLAG, LIST, OBJECT, FRACTION = "text", 3, True, [1], {"a": 1}, 1.5


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("model", [NUMBER, FLAG, LIST, OBJECT, FRACTION, []]),
        ("messages", [TEXT, NUMBER, FLAG, OBJECT, FRACTION, []]),
        ("stream", [TEXT, NUMBER, LIST, OBJECT, FRACTION, 1]),
        ("stream_options", [TEXT, NUMBER, FLAG, LIST, FRACTION, ""]),
        ("temperature", [TEXT, FLAG, LIST, OBJECT, -0.01, 2.01]),
        ("top_p", [TEXT, FLAG, LIST, OBJECT, -0.01, 1.01]),
        ("presence_penalty", [TEXT, FLAG, LIST, OBJECT, -2.01, 2.01]),
        ("frequency_penalty", [TEXT, FLAG, LIST, OBJECT, -2.01, 2.01]),
        ("max_tokens", [TEXT, FLAG, LIST, OBJECT, 0, FRACTION, -1, 1.0, 2.0**64]),
        ("response_format", [TEXT, NUMBER, FLAG, LIST, FRACTION, "json_object"]),
        ("tools", [TEXT, NUMBER, FLAG, OBJECT, FRACTION, ""]),
        ("tool_choice", [NUMBER, FLAG, LIST, FRACTION, [], 0]),
        ("parallel_tool_calls", [TEXT, NUMBER, LIST, OBJECT, FRACTION, 0]),
        ("reasoning_effort", [NUMBER, FLAG, LIST, OBJECT, FRACTION, []]),
        ("reasoning", [TEXT, NUMBER, FLAG, LIST, FRACTION, ""]),
    ],
)
def test_each_field_refuses_other_types_and_names_itself(name: str, wrong: list[Any]) -> None:
    for value in wrong:
        error = refusal_with(**{name: value})
        assert (error.param, error.type, error.code) == (name, "invalid_request_error", None), value


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"messages": ["Hi"]}, "messages[0]", "messages[0] must be an object"),
        ({"messages": [USER, {"content": "x"}]}, "messages[1].role", None),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", None),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role", None),
        ({"messages": [{"role": "user"}]}, "messages[0].content", None),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", None),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content", None),
        ({"messages": [{"role": "assistant", "tool_calls": []}]}, "messages[0].content", None),
        ({"messages": [{"role": "user", "content": 4}]}, "messages[0].content", None),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0]", None),
        ({"messages": [{"role": "user", "content": [{"type": 4}]}]}, "messages[0].content[0]", None),
        ({"tools": [{"type": "function"}, "f"]}, "tools[1]", None),
        ({"tools": [{}]}, "tools[0]", None),
        ({"response_format": {}}, "response_format.type", None),
        ({"response_format": {"type": "xml"}}, "response_format.type", None),
        ({"response_format": {"type": ["text"]}}, "response_format.type", None),
        ({"reasoning": {"effort": 3}}, "reasoning.effort", "reasoning.effort must be a string"),
        (
            {"stream": True, "stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
            "stream_options.include_usage must be true or false",
        ),
    ],
)
def test_what_is_wrong_inside_a_field_is_named(fields: dict[str, Any], param: str, message: str | None) -> None:
    error = refusal_with(**fields)
    assert error.param == param
    assert message is None or error.message == message


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_model_and_messages_are_required(missing: str) -> None:
    document = {"model": MODEL, "messages": [USER]}
    assert refusal(document | {missing: None}).message == f"{missing} is required"
    del document[missing]
    error = refusal(document)
    assert (error.message, error.param) == (f"{missing} is required", missing)


@pytest.mark.parametrize("value", [True, {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}, "on", 0])
def test_thinking_is_refused_with_the_published_text(value: Any) -> None:
    error = refusal_with(thinking=value)
    assert orjson.loads(error.body())["error"] == {
        "message": '"thinking" is not supported on /v1/chat/completions and was not applied. '
        'Use "reasoning_effort" (or "reasoning.effort") to control thinking.',
        "type": "invalid_request_error",
        "param": "thinking",
        "code": "unsupported_parameter",
    }


@pytest.mark.parametrize("value", [True, False, "yes", {}])
def test_reasoning_enabled_is_refused_the_same_way(value: Any) -> None:
    error = refusal_with(reasoning={"enabled": value, "effort": "low"})
    assert error.message == (
        '"reasoning.enabled" is not supported on /v1/chat/completions and was not applied. '
        'Use "reasoning_effort" (or "reasoning.effort") to control thinking.'
    )
    assert (error.code, error.param) == ("unsupported_parameter", "reasoning.enabled")


def test_two_efforts_at_once_are_refused_even_when_equal() -> None:
    error = refusal_with(reasoning_effort="low", reasoning={"effort": "low"})
    assert error.message == "Cannot specify both reasoning_effort and reasoning.effort. Use one or the other."
    assert error.code == "invalid_request"


@pytest.mark.parametrize("model", ["GPT-9", "", "MinerU2.5-Pro", "OmniVoice", "Clef", "deepseek-v4-flash", "\n\x00"])
def test_unknown_models_and_those_of_other_endpoints_are_refused_alike(model: str) -> None:
    error = refusal_with(model=model)
    assert (error.message, error.param) == (f"Requested model {model} not supported", "model")


def test_images_are_refused_by_text_models_only() -> None:
    messages = [USER, {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}]
    assert refusal_with(messages=messages).message == f"Model {MODEL} does not support image input."
    assert parse_with(model=SEES, messages=messages).body["messages"] == messages


def test_json_output_a_model_lacks_is_refused() -> None:
    plain = unknown_model("plain")
    catalog = {"plain": Model(id="plain", name="plain", card_title="", json_output=False, structured_outputs=False)}
    document = {"model": "plain", "messages": [USER], "response_format": {"type": "json_schema"}}
    error = refusal(document, catalog=catalog)
    assert error.message == "Model plain does not support JSON schema output mode"
    document["response_format"] = {"type": "json_object"}
    assert refusal(document, catalog=catalog).message == "Model plain does not support JSON output mode"
    document["response_format"] = {"type": "text"}
    assert parse(document, catalog=catalog).body["response_format"] == {"type": "text"}
    # A model that no card describes is asked, not judged.
    assert parse(document | {"response_format": {"type": "json_schema"}}, catalog={"plain": plain}).model == "plain"


@pytest.mark.parametrize(
    ("document", "param"),
    [
        # Each document is wrong in its own way and in all the ways that are looked for later.
        ({"thinking": 1, "messages": 4, "model": "GPT-9"}, "thinking"),
        ({"messages": [USER], "temperature": 9, "model": "GPT-9"}, "temperature"),
        ({"messages": [{"role": "user", "content": [IMAGE]}], "model": "GPT-9"}, "model"),
        (
            {"messages": [{"role": "user", "content": [IMAGE]}], "model": MODEL, "reasoning_effort": "nonsense"},
            "messages",
        ),
    ],
)
def test_the_order_of_checks(document: dict[str, Any], param: str) -> None:
    assert refusal(document).param == param


# -- dropped -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "stop",
        "seed",
        "top_k",
        "logit_bias",
        "n",
        "user",
        "logprobs",
        "top_logprobs",
        "min_p",
        "repetition_penalty",
        "é",
    ],
)
def test_other_parameters_are_dropped_whatever_their_type(name: str) -> None:
    for value in (TEXT, NUMBER, FLAG, LIST, OBJECT, FRACTION, None):
        request = parse_with(**{name: value})
        assert request.body == {"model": MODEL, "messages": [USER]}
        assert request.dropped == [name]


def test_what_is_dropped_inside_an_object_is_named_with_its_path() -> None:
    request = parse_with(
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        reasoning={"effort": "low", "max_tokens": 100},
    )
    assert sorted(request.dropped) == ["reasoning.max_tokens", "stream_options.continuous_usage_stats"]


def test_a_card_may_accept_more() -> None:
    document = {"model": DOUBLEWORD, "messages": [USER], "stop": ["a", "b"], "n": 2, "user": "ann", "seed": 1}
    request = parse(document)
    assert request.body == {name: value for name, value in document.items() if name != "seed"}
    assert request.dropped == ["seed"]
    assert parse(document | {"stop": "END"}).body["stop"] == "END"
    assert "stop" not in parse(document | {"stop": None}).body


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("stop", [["a"] * 5, [1], 4, True, {"a": 1}, 1.5]),
        ("n", [0, "2", True, [1], {}, 1.5]),
        ("user", [1, True, [], {}, 1.5, ["ann"]]),
    ],
)
def test_what_a_card_accepts_more_is_checked_too(name: str, wrong: list[Any]) -> None:
    for value in wrong:
        assert refusal({"model": DOUBLEWORD, "messages": [USER], name: value}).param == name, value


# -- JSON --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"", b" ", b"{", b"hello", b"{'model': 1}", b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e999}', b'{"a": 1,}',
        b'{"a": "\\ud800"}', b'{"a": "\\udc00x"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xff"}', b"\xef\xbb\xbf{}",
        b"{} {}", b"[" * 1025 + b"]" * 1025, b'{"a":' * 1025 + b"1" + b"}" * 1025, b"[" * 1_000_000,
        b'{"a": ' + b"9" * 400 + b"}", "{\"a\": 1}".encode("utf-16"),
    ],
)  # fmt: skip
def test_what_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_json_object(raw)
    assert (caught.value.status, caught.value.message) == (400, "Malformed JSON in request body")


@pytest.mark.parametrize("raw", [b"[]", b"[{}]", b'"text"', b"1", b"true", b"null"])
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest, match="must be a JSON object"):
        parse_json_object(raw)


def test_of_duplicate_keys_the_last_wins() -> None:
    assert parse_json_object(b'{"model": "a", "model": "b"}') == {"model": "b"}


def test_numbers_beyond_64_bits_are_no_counts() -> None:
    document = parse_json_object(
        b'{"model": "%s", "messages": [], "max_tokens": 18446744073709551616}' % MODEL.encode()
    )
    assert refusal(document | {"messages": [USER]}).param == "max_tokens"


def test_what_can_be_read_but_not_written_again_is_refused() -> None:
    deep = parse_json_object(b'{"a":' + b"[" * 300 + b"]" * 300 + b"}")
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        to_json({"model": MODEL, "chat_template_kwargs": deep})
    assert orjson.loads(to_json({"model": MODEL, "messages": [USER]})) == {"model": MODEL, "messages": [USER]}
