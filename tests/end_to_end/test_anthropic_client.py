"""The official `anthropic` client, unmodified, against every chat model of the catalog."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic.types import Message, MessageParam, ToolParam, ToolResultBlockParam

from gateway.catalog import load
from tests.documents import png
from tests.installation import Installation, WebProcess
from tests.services import wait_until

CHAT_MODELS = [model.id for model in load().chat_models()]
THINKERS = [model.id for model in load().chat_models() if model.thinks_by_default]
MODEL = "DeepSeek-V4-Flash"
HELLO: list[MessageParam] = [{"role": "user", "content": "Name three rivers. [[tokens=20]]"}]
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "Looks up the weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ASK_WEATHER: MessageParam = {"role": "user", "content": "What is the weather in Hangzhou? [[calls=2]]"}


@pytest.fixture(scope="module")
def web(demo_installation: Installation) -> WebProcess:
    return demo_installation.start_web()


@pytest.fixture(scope="module")
def client(web: WebProcess, demo_installation: Installation) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=web.url, api_key=demo_installation.secret, max_retries=0) as client:
        yield client


def kinds(message: Message) -> list[str]:
    return [block.type for block in message.content]


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("model", CHAT_MODELS)
def test_every_model_answers(client: anthropic.Anthropic, model: str) -> None:
    message = client.messages.create(model=model, max_tokens=2000, system="Be brief.", messages=HELLO)
    assert message.id.startswith("msg_")
    assert message.model == model
    assert message.stop_reason == "end_turn"
    assert kinds(message) == (["thinking", "text"] if model in THINKERS else ["text"])
    assert message.usage.output_tokens >= 20
    assert message._request_id


@pytest.mark.parametrize("model", CHAT_MODELS)
def test_every_model_streams_the_same_message(client: anthropic.Anthropic, model: str) -> None:
    with client.messages.stream(model=model, max_tokens=2000, messages=HELLO) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    whole = client.messages.create(model=model, max_tokens=2000, messages=HELLO)
    assert kinds(message) == kinds(whole)
    assert text == text_of(message) == text_of(whole)
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == whole.usage.output_tokens


def test_the_events_come_in_order(client: anthropic.Anthropic) -> None:
    found: list[Any] = [*client.messages.create(model="Qwen3.8-27B", max_tokens=2000, messages=HELLO, stream=True)]
    types = [event.type for event in found if event.type != "content_block_delta"]
    block = ["content_block_start", "content_block_stop"]
    assert types == ["message_start", *block, *block, "message_delta", "message_stop"]


@pytest.mark.parametrize("model", CHAT_MODELS)
def test_a_round_of_tools(client: anthropic.Anthropic, model: str) -> None:
    messages: list[MessageParam] = [ASK_WEATHER]
    first = client.messages.create(model=model, max_tokens=2000, tools=[WEATHER], messages=messages)
    assert first.stop_reason == "tool_use"
    uses = [block for block in first.content if block.type == "tool_use"]
    assert [(use.name, list(use.input)) for use in uses] == [("get_weather", ["city"])] * 2
    results: list[ToolResultBlockParam] = [
        {"type": "tool_result", "tool_use_id": use.id, "content": '{"degrees": 21}'} for use in uses
    ]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = client.messages.create(model=model, max_tokens=2000, tools=[WEATHER], messages=messages)
    assert second.stop_reason == "end_turn"
    assert "21" in text_of(second)


def test_streamed_tools(client: anthropic.Anthropic) -> None:
    with client.messages.stream(model=MODEL, max_tokens=2000, tools=[WEATHER], messages=[ASK_WEATHER]) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use"
    assert [block.input for block in message.content if block.type == "tool_use"] == [{"city": "Hangzhou"}] * 2


def test_the_tool_runner_loops_to_an_answer(client: anthropic.Anthropic) -> None:
    asked = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Looks up the weather of a city.

        Args:
            city: where
        """
        asked.append(city)
        return '{"degrees": 21}'

    question: Any = {"role": "user", "content": "What is the weather in Hangzhou?"}
    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=2000, tools=[get_weather], messages=[question])
    last = runner.until_done()
    assert asked == ["Hangzhou"]
    assert last.stop_reason == "end_turn"


def test_an_image(client: anthropic.Anthropic) -> None:
    source: Any = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png(4, 4)).decode()}
    content: Any = [{"type": "image", "source": source}, {"type": "text", "text": "What is it?"}]
    messages: list[MessageParam] = [{"role": "user", "content": content}]
    assert client.messages.create(model="Gemma-4-31B-IT", max_tokens=900, messages=messages).stop_reason == "end_turn"
    with pytest.raises(anthropic.BadRequestError, match="does not support image input"):
        client.messages.create(model=MODEL, max_tokens=900, messages=messages)


def test_effort_and_limits(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model=MODEL, max_tokens=2000, messages=HELLO, output_config={"effort": "high"})
    assert kinds(message) == ["thinking", "text"]
    cut = client.messages.create(model=MODEL, max_tokens=5, messages=HELLO)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 5)


def test_a_cached_prefix_is_told_apart(client: anthropic.Anthropic) -> None:
    long = " ".join(f"river{n}" for n in range(200))
    for _ in range(2):
        message = client.messages.create(
            model=MODEL, max_tokens=50, messages=[{"role": "user", "content": f"{long} [[tokens=3]]"}]
        )
    usage = message.usage
    assert usage.cache_read_input_tokens is not None
    assert usage.cache_read_input_tokens > 100
    assert 0 < usage.input_tokens < 100
    assert usage.cache_creation_input_tokens == 0


def test_the_async_client(web: WebProcess, demo_installation: Installation) -> None:
    async def run() -> tuple[Message, Message]:
        async with anthropic.AsyncAnthropic(base_url=web.url, api_key=demo_installation.secret) as client:
            whole = await client.messages.create(model=MODEL, max_tokens=900, messages=HELLO)
            async with client.messages.stream(model=MODEL, max_tokens=900, messages=HELLO) as stream:
                return whole, await stream.get_final_message()

    whole, streamed = asyncio.run(run())
    assert text_of(whole) == text_of(streamed)


def test_tokens_are_counted_without_a_charge(client: anthropic.Anthropic) -> None:
    short = client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens
    long = client.messages.count_tokens(model=MODEL, system="x" * 4000, messages=HELLO).input_tokens
    assert 5 < short < 30
    assert long == short + 1004


def test_thinking_is_refused_with_the_way_that_works(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"output_config") as caught:
        client.messages.create(
            model=MODEL, max_tokens=2000, messages=HELLO, thinking={"type": "enabled", "budget_tokens": 1024}
        )
    body: Any = caught.value.body
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert body["request_id"] == caught.value.request_id


def test_what_is_dropped_is_named(client: anthropic.Anthropic) -> None:
    answer = client.messages.with_raw_response.create(
        model=MODEL, max_tokens=20, messages=HELLO, stop_sequences=["x"], extra_body={"top_k": 3, "top_p": 0.5}
    )
    assert answer.headers["x-dropped-params"] == "stop_sequences, top_k, top_p"


def test_errors_are_the_clients_own(web: WebProcess, client: anthropic.Anthropic) -> None:
    stranger = anthropic.Anthropic(base_url=web.url, api_key="rc-" + "0" * 48, max_retries=0)
    with stranger, pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(model=MODEL, max_tokens=5, messages=HELLO)
    for model in ("nothing", "MinerU2.5-Pro"):
        with pytest.raises(anthropic.BadRequestError, match=f"Requested model {model} not supported"):
            client.messages.create(model=model, max_tokens=5, messages=HELLO)
    # The backend's own words with its own status, in Anthropic's envelope.
    with pytest.raises(anthropic.BadRequestError, match="Unexpected reasoning effort high"):
        client.messages.create(model="Qwen3.8-27B", max_tokens=5, messages=HELLO, output_config={"effort": "high"})
    with pytest.raises(anthropic.UnprocessableEntityError, match="unknown variant"):
        client.messages.create(model="GLM-5.3-Flash", max_tokens=5, messages=HELLO, output_config={"effort": "xhigh"})


def test_other_methods_and_paths_are_told_in_the_envelope(web: WebProcess) -> None:
    for method, path, status in (("GET", "messages", 405), ("POST", "messages/batches", 404)):
        answer = httpx.request(method, f"{web.url}/v1/{path}")
        assert (answer.status_code, answer.json()["type"]) == (status, "error")


def test_a_message_is_recorded_and_charged_like_any_chat(
    client: anthropic.Anthropic, demo_installation: Installation
) -> None:
    with client.messages.stream(model=MODEL, max_tokens=900, messages=HELLO) as stream:
        usage = stream.get_final_message().usage
        request_id = stream.response.headers["x-request-id"]
    sql = (
        "select endpoint, stream, outcome, prompt_tokens, cached_tokens, completion_tokens,"
        " (select sum(amount_ppt) from billing_charge where record_id = r.id)"
        f" from billing_usagerecord r where id = '{request_id.replace('-', '')}' and rated_at is not null"
    )
    wait_until(lambda: demo_installation.query(sql) != [], what="the rated record", seconds=60)
    (record,) = demo_installation.query(sql)
    cached = usage.cache_read_input_tokens or 0
    cost = usage.input_tokens * 140_000 + cached * 2_800 + usage.output_tokens * 280_000
    assert record == ["messages", 1, "ok", usage.input_tokens + cached, cached, usage.output_tokens, cost]
