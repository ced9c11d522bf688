"""LangChain's ChatOpenAI, unmodified: whole, streamed and asynchronous answers, tools, structured output, images."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import reduce
from operator import add
from typing import Any

import httpx2
import openai
import pytest

from tests.documents import data_url, png
from tests.installation import Installation, WebProcess

langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
messages: Any = pytest.importorskip("langchain_core.messages")
tools: Any = pytest.importorskip("langchain_core.tools")

type MakeChat = Callable[..., Any]

TEXT, THINKER, SEER = "DeepSeek-V4-Flash", "GLM-5.3-Flash", "Gemma-4-31B-IT"
WEATHER = "What is the weather in Oslo?"
RIVER = {
    "title": "River",
    "description": "A river",
    "type": "object",
    "properties": {"name": {"type": "string"}, "length": {"type": "integer"}},
    "required": ["name", "length"],
    "additionalProperties": False,
}


def get_weather(city: str) -> str:
    """Current weather of a city"""
    return f"4 degrees in {city}"


@pytest.fixture(scope="module")
def chat(demo_web: WebProcess, demo_installation: Installation) -> Iterator[MakeChat]:
    with httpx2.Client() as http:

        def make(model: str = TEXT, **settings: Any) -> Any:
            own: dict[str, Any] = {"base_url": f"{demo_web.url}/v1", "api_key": demo_installation.secret}
            return langchain_openai.ChatOpenAI(model=model, **own | {"http_client": http, "max_retries": 0} | settings)

        yield make


def test_an_answer_with_its_usage(chat: MakeChat) -> None:
    answer = chat(THINKER).invoke("Why is snow white? [[tokens=12]] [[thinking=5]]")
    assert answer.content.startswith("## Why is snow white?")
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.usage_metadata["output_tokens"] == 17
    assert answer.usage_metadata["output_token_details"] == {"reasoning": 5}


def test_a_stream_adds_up_to_the_same(chat: MakeChat) -> None:
    pieces = list(chat(THINKER, stream_usage=True).stream("Three rivers [[tokens=9]] [[thinking=4]] [[pace=0.03]]"))
    whole = reduce(add, pieces)
    assert len(pieces) > 9
    assert whole.content.startswith("## Three rivers")
    assert (whole.response_metadata["finish_reason"], whole.usage_metadata["output_tokens"]) == ("stop", 13)


def test_many_answers_at_once_without_blocking(chat: MakeChat) -> None:
    async def ask() -> tuple[str, list[Any]]:
        async with httpx2.AsyncClient() as http:
            model = chat(http_async_client=http)
            streamed = [piece.content async for piece in model.astream("Hello [[tokens=6]]")]
            return "".join(streamed), await model.abatch([f"Number {number} [[tokens=3]]" for number in range(3)])

    streamed, answers = asyncio.run(ask())
    assert streamed.startswith("## Hello")
    assert [answer.usage_metadata["output_tokens"] for answer in answers] == [3, 3, 3]


def test_a_round_of_tools(chat: MakeChat) -> None:
    tool = tools.tool(get_weather)
    model = chat().bind_tools([tool])
    said = [messages.SystemMessage("Be brief."), messages.HumanMessage(WEATHER)]
    asks = model.invoke(said)
    assert [(call["name"], call["args"]) for call in asks.tool_calls] == [("get_weather", {"city": "Oslo"})]
    said += [asks, *(tool.invoke(call) for call in asks.tool_calls)]
    answer = model.invoke(said)
    assert not answer.tool_calls
    assert "4 degrees in Oslo" in answer.content


def test_streamed_tool_calls_are_whole(chat: MakeChat) -> None:
    model = chat(THINKER).bind_tools([tools.tool(get_weather)])
    asks = reduce(add, model.stream(f"{WEATHER} [[calls=2]]"))
    assert [call["args"] for call in asks.tool_calls] == [{"city": "Oslo"}] * 2
    assert not asks.invalid_tool_calls


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(chat: MakeChat, method: str) -> None:
    river = chat().with_structured_output(RIVER, method=method).invoke("The river Rhine")
    assert river == {"name": "Rhine", "length": 1}


def test_json_mode(chat: MakeChat) -> None:
    document = chat().with_structured_output(None, method="json_mode").invoke("The river Rhine as JSON")
    assert document["topic"] == "The river Rhine as JSON"


def test_an_image(chat: MakeChat) -> None:
    picture = {"type": "image_url", "image_url": {"url": data_url(png(64, 64), "image/png")}}
    question = messages.HumanMessage([{"type": "text", "text": "What is this? [[tokens=5]]"}, picture])
    assert chat(SEER).invoke([question]).usage_metadata["output_tokens"] == 5


def test_portable_mode_takes_its_own_name_of_the_token_limit(chat: MakeChat) -> None:
    portable = {"x-portable": "1"}
    answer = chat(THINKER, max_tokens=4, default_headers=portable).invoke([messages.SystemMessage("Hi"), *["Hello"]])
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.usage_metadata["output_tokens"] == 4


@pytest.mark.parametrize(
    ("model", "settings", "error", "text"),
    [
        ("gpt-7", {}, openai.BadRequestError, "Requested model gpt-7 not supported"),
        (THINKER, {"reasoning_effort": "xhigh"}, openai.UnprocessableEntityError, "unknown variant `xhigh`"),
        (TEXT, {"api_key": "rc-" + "0" * 48}, openai.AuthenticationError, "Invalid API key"),
    ],
)
def test_errors_are_the_clients_own(
    chat: MakeChat, model: str, settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        chat(model, **settings).invoke("Hello")
    with pytest.raises(error, match=text):
        list(chat(model, **settings).stream("Hello"))
