"""The request that settings stand for: what this model takes of them, and nothing that it would ignore."""

from __future__ import annotations

from typing import Any

from playground.tool_schema import parse_schema, parse_tools
from tests.playground.conftest import chosen

HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = parse_tools('{"name": "f", "parameters": {"type": "object"}}')


def body(model: str, **settings: Any) -> dict[str, Any]:
    return chosen(model, **settings).body(HELLO)


def test_without_settings_only_model_and_messages_go_out() -> None:
    assert body("Qwen3.8-27B") == {"model": "Qwen3.8-27B", "messages": HELLO, "stream": True}


def test_settings_go_out_under_their_names() -> None:
    sent = body(
        "Qwen3.8-27B", temperature=0, top_p=0.9, max_tokens=100, effort="low", system=" Be brief. ",
        presence_penalty=0.5, frequency_penalty=-1,
    )  # fmt: skip
    assert sent == {
        "model": "Qwen3.8-27B",
        "messages": [{"role": "system", "content": "Be brief."}, *HELLO],
        "stream": True,
        "temperature": 0,
        "top_p": 0.9,
        "max_tokens": 100,
        "presence_penalty": 0.5,
        "frequency_penalty": -1,
        "reasoning_effort": "low",
    }


def test_the_thinking_switch_goes_only_to_models_that_have_it() -> None:
    assert body("Gemma-4-31B-IT", thinking=True)["chat_template_kwargs"] == {"enable_thinking": True}
    assert "chat_template_kwargs" not in body("Qwen3.8-27B", thinking=True)


def test_an_effort_kept_from_another_model_is_not_sent() -> None:
    assert "reasoning_effort" not in body("Qwen3.8-27B", effort="high")


def test_portable_mode_sends_the_effort_for_the_gateway_to_fit() -> None:
    assert body("Qwen3.8-27B", effort="high", portable=True)["reasoning_effort"] == "high"


def test_stop_sequences_go_only_to_models_that_get_them() -> None:
    assert body("Qwen/Qwen3-30B-A3B-FP8", stop=["END"])["stop"] == ["END"]
    assert "stop" not in body("Qwen3.8-27B", stop=["END"])


def test_json_goes_out_as_a_response_format() -> None:
    assert body("Qwen3.8-27B", format="json_object")["response_format"] == {"type": "json_object"}
    schema = parse_schema('{"type": "object"}')
    assert body("Qwen3.8-27B", format="json_schema", schema=schema)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {"type": "object"}},
    }
    assert chosen("Qwen3.8-27B", format="json_object").is_json
    assert not chosen("Qwen3.8-27B").is_json


def test_tools_go_out_with_when_to_call_them() -> None:
    sent = body("Qwen3.8-27B", tools=TOOLS, tool_choice="required", single_call=True)
    assert (sent["tools"], sent["tool_choice"], sent["parallel_tool_calls"]) == (TOOLS, "required", False)
    assert "tool_choice" not in body("Qwen3.8-27B", tool_choice="required")
