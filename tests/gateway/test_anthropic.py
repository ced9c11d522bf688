"""Anthropic's messages as chat completions, and back."""

from typing import Any

import pytest

from gateway.anthropic import parse_messages_request
from gateway.anthropic_answer import error_document, estimated_input_tokens, message_from
from gateway.errors import InvalidRequest, Unauthorized, UpstreamRefusal, UpstreamSaturated, UpstreamTimeout

type Json = dict[str, Any]

REQUEST_ID = "0192f0c1-1111-7222-8333-444455556666"
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def chat_of(**fields: Any) -> Json:
    return parse_messages_request(request(**fields)).chat


def request(**fields: Any) -> Json:
    return {
        "model": "DeepSeek-V4-Flash",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
        **fields,
    }


def messages_of(*messages: Json) -> list[Json]:
    found: list[Json] = chat_of(messages=list(messages))["messages"]
    return found


def refused(**fields: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_messages_request(request(**fields))
    return caught.value


def test_a_plain_request() -> None:
    assert chat_of(temperature=0.5) == {
        "model": "DeepSeek-V4-Flash",
        "max_tokens": 100,
        "temperature": 0.5,
        "messages": [{"role": "user", "content": "Hi"}],
    }


def test_a_stream_asks_for_usage() -> None:
    chat = chat_of(stream=True)
    assert (chat["stream"], chat["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize(
    "system", ["Be brief.\n\nBe kind.", [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]]
)
def test_system_is_the_first_message(system: Any) -> None:
    assert chat_of(system=system)["messages"][0] == {"role": "system", "content": "Be brief.\n\nBe kind."}


def test_a_system_message_among_the_others_stays_where_it_is() -> None:
    content = [{"type": "text", "text": "Now in French."}]
    messages = messages_of({"role": "user", "content": "Hi"}, {"role": "system", "content": content})
    assert messages[1] == {"role": "system", "content": "Now in French."}


def test_an_empty_system_is_none() -> None:
    assert len(chat_of(system="")["messages"]) == 1


def test_text_and_images() -> None:
    content = [PNG, {"type": "text", "text": "What is it?", "cache_control": {"type": "ephemeral"}}]
    assert messages_of({"role": "user", "content": content}) == [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "text", "text": "What is it?"},
            ],
        }
    ]


def test_a_round_of_tools() -> None:
    thought = {"type": "thinking", "thinking": "Hm", "signature": "x"}
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "北京"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "20°"}, PNG]}
    failed = {"type": "tool_result", "tool_use_id": "toolu_2", "content": "timed out", "is_error": True}
    assert messages_of(
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}, use]},
        {"role": "user", "content": [result, failed, {"type": "text", "text": "Well?"}]},
    ) == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"北京"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "20°"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: timed out"},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]


def test_tools_and_their_choice() -> None:
    tool = {"name": "weather", "description": "Looks out", "input_schema": {"type": "object"}}
    chat = chat_of(tools=[tool], tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True})
    function = {"name": "weather", "description": "Looks out", "parameters": {"type": "object"}}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert chat["parallel_tool_calls"] is False


@pytest.mark.parametrize(("kind", "meant"), [("auto", "auto"), ("any", "required"), ("none", "none")])
def test_plain_choices(kind: str, meant: str) -> None:
    assert chat_of(tool_choice={"type": kind})["tool_choice"] == meant


def test_effort() -> None:
    assert chat_of(output_config={"effort": "high"})["reasoning_effort"] == "high"


def test_disabled_thinking_is_no_fault() -> None:
    assert "thinking" not in chat_of(thinking={"type": "disabled"})


@pytest.mark.parametrize("thinking", [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}, {}, "on"])
def test_thinking_is_refused_with_the_way_that_works(thinking: Any) -> None:
    error = refused(thinking=thinking)
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", "thinking")
    assert "output_config" in error.message
    assert "effort" in error.message


def test_what_is_dropped_is_named() -> None:
    dropped = parse_messages_request(
        request(
            top_p=0.5,
            top_k=3,
            stop_sequences=["x"],
            service_tier="auto",
            metadata={"user_id": "u"},
            output_config={"effort": "low", "format": {"type": "json_schema"}},
            system=[{"type": "text", "text": "s", "cache_control": {}}],
            tools=[{"name": "t", "input_schema": {}, "input_examples": []}],
        )
    ).dropped
    assert dropped == {
        "top_p",
        "top_k",
        "stop_sequences",
        "service_tier",
        "output_config.format",
        "cache_control",
        "tools.input_examples",
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"model": 3}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [3]}, "messages.0"),
        ({"messages": [{"role": "developer", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages.0.content.0.type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url"}}]}]},
            "messages.0.content.0.source.type",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b"}]}]},
            "messages.0.content.0.input",
        ),
        ({"temperature": 1.5}, "temperature"),
        ({"stream": "yes"}, "stream"),
        ({"system": [PNG]}, "system.0"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type"),
        ({"tools": [{"name": "t"}]}, "tools.0.input_schema"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"output_config": {"effort": 3}}, "output_config.effort"),
    ],
)
def test_what_is_malformed_is_refused_where_it_stands(fields: Json, param: str) -> None:
    error = refused(**fields)
    assert (error.status, error.param) == (400, param)


def test_counting_needs_no_max_tokens() -> None:
    document = {"model": "m", "messages": [{"role": "user", "content": "x" * 40}]}
    assert estimated_input_tokens(parse_messages_request(document, counting=True).chat) == 14


def completion(message: Json, *, finish_reason: str = "stop", usage: Json | None = None) -> Json:
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish_reason}], "usage": usage}


def test_an_answer_with_thinking() -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 16}}
    answer = completion({"role": "assistant", "content": "Hello", "reasoning": "Greet."}, usage=usage)
    assert message_from(answer, request_id=REQUEST_ID, model="m") == {
        "id": "msg_0192f0c1111172228333444455556666",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Greet.", "signature": ""},
            {"type": "text", "text": "Hello"},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 4,
            "output_tokens": 7,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 16,
        },
    }


def test_an_answer_with_calls() -> None:
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "a", "arguments": '{"x":1}'}},
        {"id": "call_2", "type": "function", "function": {"name": "b", "arguments": "not JSON"}},
        {"id": "call_3", "type": "function", "function": {"name": "c", "arguments": ""}},
    ]
    answer = message_from(completion({"content": None, "tool_calls": calls}), request_id=REQUEST_ID, model="m")
    assert answer["content"] == [
        {"type": "tool_use", "id": "call_1", "name": "a", "input": {"x": 1}},
        {"type": "tool_use", "id": "call_2", "name": "b", "input": {"arguments": "not JSON"}},
        {"type": "tool_use", "id": "call_3", "name": "c", "input": {}},
    ]
    assert answer["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("new_one", "end_turn")],
)
def test_stop_reasons(finish_reason: str, stop_reason: str) -> None:
    answer = completion({"content": "x"}, finish_reason=finish_reason)
    assert message_from(answer, request_id=REQUEST_ID, model="m")["stop_reason"] == stop_reason


def test_a_refusal_is_text_with_its_stop_reason() -> None:
    answer = message_from(completion({"content": None, "refusal": "No."}), request_id=REQUEST_ID, model="m")
    assert (answer["content"], answer["stop_reason"]) == ([{"type": "text", "text": "No."}], "refusal")


@pytest.mark.parametrize("document", [{}, {"choices": []}, {"choices": [{}]}, {"choices": "x"}])
def test_no_completion_is_said_so(document: Json) -> None:
    with pytest.raises(ValueError, match="no message"):
        message_from(document, request_id=REQUEST_ID, model="m")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (InvalidRequest("x"), "invalid_request_error"),
        (InvalidRequest("x", status=413), "request_too_large"),
        (InvalidRequest("x", status=422), "invalid_request_error"),
        (Unauthorized("x"), "authentication_error"),
        (UpstreamSaturated("x"), "overloaded_error"),
        (UpstreamTimeout("x"), "timeout_error"),
        (UpstreamRefusal(status=429, raw_body=b'{"error":{"message":"x"}}', content_type=b""), "rate_limit_error"),
        (UpstreamRefusal(status=500, raw_body=b'{"message":"x"}', content_type=b""), "api_error"),
    ],
)
def test_errors_come_in_the_envelope(error: Any, kind: str) -> None:
    assert error_document(error, request_id="r") == {
        "type": "error",
        "error": {"type": kind, "message": "x"},
        "request_id": "r",
    }
