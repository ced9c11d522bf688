"""Tool calls: when they are made, that their arguments fit, and what follows a result."""

import json

from gateway.demo.tokens import count
from tests.gateway.demo.client import Demo, Json, user

WEATHER: Json = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city"],
        },
    },
}
STOCK: Json = {"type": "function", "function": {"name": "stock_price", "parameters": {"type": "object"}}}
ASK = [user("What is the weather in Paris over 3 days, in fahrenheit?")]


def arguments(call: Json) -> Json:
    found: Json = json.loads(call["function"]["arguments"])
    return found


def test_a_prompt_that_mentions_the_tool_calls_it(demo: Demo) -> None:
    answer = demo.complete(messages=ASK, tools=[STOCK, WEATHER])
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    assert call["function"]["name"] == "get_weather"
    assert arguments(call) == {"city": "Paris", "unit": "fahrenheit", "days": 3}
    assert answer["usage"]["completion_tokens"] == 1 + count(call["function"]["arguments"])


def test_a_prompt_about_something_else_is_answered_in_text(demo: Demo) -> None:
    choice = demo.complete(messages=[user("Tell me a joke")], tools=[WEATHER])["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]


def test_tool_choice_none_never_calls(demo: Demo) -> None:
    assert "tool_calls" not in demo.message(messages=ASK, tools=[WEATHER], tool_choice="none")


def test_tool_choice_required_always_calls(demo: Demo) -> None:
    message = demo.message(messages=[user("Tell me a joke")], tools=[STOCK, WEATHER], tool_choice="required")
    assert message["tool_calls"][0]["function"]["name"] == "stock_price"


def test_a_named_tool_is_the_one_called(demo: Demo) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    message = demo.message(messages=[user("Joke")], tools=[STOCK, WEATHER], tool_choice=named)
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"


def test_an_unknown_named_tool_is_refused(demo: Demo) -> None:
    named = {"type": "function", "function": {"name": "fly"}}
    assert demo.refused(tools=[STOCK], tool_choice=named) == (
        400,
        "The tool specified in `tool_choice` does not match any of the specified `tools`.",
    )


def test_calls_stream_as_id_and_name_first_then_pieces_of_arguments(demo: Demo) -> None:
    streamed = demo.stream(messages=ASK, tools=[WEATHER], parallel_tool_calls=False)
    parts = [delta["tool_calls"][0] for delta in streamed.deltas if "tool_calls" in delta]
    assert (parts[0]["index"], parts[0]["function"]) == (0, {"name": "get_weather", "arguments": ""})
    assert all(set(part) == {"index", "function"} for part in parts[1:])
    joined = "".join(part["function"]["arguments"] for part in parts)
    assert json.loads(joined) == {"city": "Paris", "unit": "fahrenheit", "days": 3}
    assert streamed.finish_reasons == ["tool_calls"]


def test_several_calls_at_once_on_request(demo: Demo) -> None:
    streamed = demo.stream(messages=[user("weather in Paris [[calls=3]]")], tools=[WEATHER])
    starts = [part for delta in streamed.deltas for part in delta.get("tool_calls", ()) if "id" in part]
    assert [part["index"] for part in starts] == [0, 1, 2]
    assert len({part["id"] for part in starts}) == 3


def test_thinking_models_think_before_they_call(demo: Demo) -> None:
    message = demo.message(model="Qwen3.8-27B", messages=ASK, tools=[WEATHER])
    assert message["reasoning"]
    assert message["tool_calls"]


def test_after_the_result_it_answers_in_text_with_the_result(demo: Demo) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
    messages = [
        *ASK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": '{"sky": "clear", "degrees": 71}'},
    ]
    choice = demo.complete(messages=messages, tools=[WEATHER])["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "| sky | clear |\n| degrees | 71 |" in choice["message"]["content"]


def test_chinese_prompts_and_descriptions_meet(demo: Demo) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "查询天气", "parameters": {}}}
    assert demo.message(messages=[user("北京的天气怎么样？")], tools=[tool])["tool_calls"]
