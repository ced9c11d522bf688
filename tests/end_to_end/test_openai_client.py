"""The official `openai` client, unmodified, against every chat model of the catalog."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel

from gateway.catalog import load
from tests.documents import data_url, png
from tests.installation import Installation, WebProcess
from tests.services import wait_until

CHAT_MODELS = [model.id for model in load().chat_models()]
THINKERS = [model.id for model in load().chat_models() if model.thinks_by_default]
SEERS = [model.id for model in load().chat_models() if model.sees_images]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@pytest.fixture(scope="module")
def client(demo_web: WebProcess, demo_installation: Installation) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{demo_web.url}/v1", api_key=demo_installation.secret, max_retries=0) as client:
        yield client


def test_the_model_list_names_every_model(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == list(load())


@pytest.mark.parametrize("model_id", CHAT_MODELS)
def test_a_model_is_retrieved_by_id(client: openai.OpenAI, model_id: str) -> None:
    assert client.models.retrieve(model_id).id == model_id


@pytest.mark.parametrize("model_id", CHAT_MODELS)
def test_every_model_completes(client: openai.OpenAI, model_id: str) -> None:
    answer = client.chat.completions.create(
        model=model_id, messages=[{"role": "user", "content": "Name three rivers. [[tokens=20]]"}]
    )
    assert answer.model == model_id
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens >= 20


@pytest.mark.parametrize("model_id", CHAT_MODELS)
def test_every_model_streams_text_and_usage(client: openai.OpenAI, model_id: str) -> None:
    content, thinking, usage = _stream(client, model_id, prompt="Name three rivers. [[tokens=20]]")
    assert content
    assert bool(thinking) == (model_id in THINKERS)
    assert usage.completion_tokens >= 20


@pytest.mark.parametrize("model_id", THINKERS)
def test_thinking_text_is_called_reasoning_on_whole_answers_too(client: openai.OpenAI, model_id: str) -> None:
    answer = client.chat.completions.create(
        model=model_id, messages=[{"role": "user", "content": "Why is snow white?"}]
    )
    message: Any = answer.choices[0].message
    assert message.reasoning
    assert "reasoning_content" not in message.model_dump()


def test_usage_reaches_a_stream_only_when_asked(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=CHAT_MODELS[0], messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    chunks = list(stream)
    assert all(chunk.choices for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)


def test_parameters_without_effect_are_named(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=CHAT_MODELS[0],
        messages=[{"role": "user", "content": "Hello"}],
        stop=["e"],
        seed=7,
        extra_body={"top_k": 40},
    )
    assert raw.headers["x-dropped-params"] == "seed, stop, top_k"
    assert raw.parse().choices[0].finish_reason == "stop"


def test_tools_are_called_and_answered(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
    first = client.chat.completions.create(model=CHAT_MODELS[0], messages=messages, tools=TOOLS, tool_choice="required")
    assert first.choices[0].finish_reason == "tool_calls"
    assert first.choices[0].message.tool_calls
    call = first.choices[0].message.tool_calls[0]
    messages += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "4 degrees"}]
    second = client.chat.completions.create(model=CHAT_MODELS[0], messages=messages, tools=TOOLS)
    assert second.choices[0].finish_reason == "stop"
    assert "4 degrees" in (second.choices[0].message.content or "")


@pytest.mark.parametrize("model_id", CHAT_MODELS)
def test_streamed_tool_calls_are_put_together(client: openai.OpenAI, model_id: str) -> None:
    asked: Any = [{"role": "user", "content": "What is the weather in Oslo? [[calls=2]] [[pace=0.005]]"}]
    with client.chat.completions.stream(model=model_id, messages=asked, tools=TOOLS) as stream:
        for _ in stream:
            pass
        calls = stream.get_final_completion().choices[0].message.tool_calls or []
    assert [call.function.arguments for call in calls] == ['{"city":"Oslo"}'] * 2


class River(BaseModel):
    name: str
    length: int


def test_structured_output_is_parsed_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: Any = [{"role": "user", "content": "The river Rhine"}]
    answer = client.chat.completions.parse(model=CHAT_MODELS[0], messages=asked, response_format=River)
    assert answer.choices[0].message.parsed == River(name="Rhine", length=1)
    with client.chat.completions.stream(model=CHAT_MODELS[0], messages=asked, response_format=River) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == River(name="Rhine", length=1)


def test_json_mode(client: openai.OpenAI) -> None:
    asked: Any = {
        "messages": [{"role": "user", "content": "The river Rhine"}],
        "response_format": {"type": "json_object"},
    }
    answer = client.chat.completions.create(model=CHAT_MODELS[0], **asked)
    assert json.loads(answer.choices[0].message.content or "")["topic"] == "The river Rhine"


@pytest.mark.parametrize("model_id", SEERS)
def test_an_image(client: openai.OpenAI, model_id: str) -> None:
    picture = {"type": "image_url", "image_url": {"url": data_url(png(64, 64), "image/png")}}
    asked: Any = [{"role": "user", "content": [{"type": "text", "text": "What is this? [[tokens=4]]"}, picture]}]
    answer = client.chat.completions.create(model=model_id, messages=asked)
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 16


def test_the_async_client(demo_web: WebProcess, demo_installation: Installation) -> None:
    async def ask() -> tuple[int, list[str]]:
        own: Any = {"base_url": f"{demo_web.url}/v1", "api_key": demo_installation.secret, "max_retries": 0}
        async with openai.AsyncOpenAI(**own) as client:
            asked: Any = {"model": CHAT_MODELS[0], "messages": [{"role": "user", "content": "Hello [[tokens=5]]"}]}
            stream = await client.chat.completions.create(**asked, stream=True)
            said = [chunk.choices[0].delta.content or "" async for chunk in stream]
            answer = await client.chat.completions.create(**asked)
            return answer.usage.completion_tokens if answer.usage else 0, said

    tokens, said = asyncio.run(ask())
    assert tokens == 5
    assert "".join(said).startswith("## Hello")


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    asked: Any = {"messages": [{"role": "user", "content": "Hello"}]}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as unknown:
            client.chat.completions.create(model="gpt-7", stream=stream, **asked)
        assert (unknown.value.param, unknown.value.type) == ("model", "invalid_request_error")
        assert unknown.value.request_id
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-7")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="rc-nothing").models.list()
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="GLM-5.3-Flash", reasoning_effort="xhigh", **asked)


def test_a_revoked_key_is_refused_from_the_next_request_on(
    demo_installation: Installation, demo_web: WebProcess
) -> None:
    made = demo_installation.run_python(
        "import django; django.setup()\n"
        "from accounts.models import Team\nfrom accounts.keys import issue_key\n"
        "issued = issue_key(team=Team.objects.earliest('pk'), created_by=None, name='short-lived')\n"
        "print(issued.key.pk, issued.secret)"
    )
    number, secret = made.split()
    with openai.OpenAI(base_url=f"{demo_web.url}/v1", api_key=secret, max_retries=0) as client:
        assert client.models.list().data
        demo_installation.manage("revoke_key", number)
        with pytest.raises(openai.AuthenticationError) as refused:
            client.models.list()
    assert refused.value.code == "invalid_api_key"


REJECTIONS = [
    ("Qwen3.8-27B", {"reasoning_effort": "high"}, 400,
     "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low."),
    ("GLM-5.3-Flash", {"reasoning_effort": "xhigh"}, 422,
     "reasoning_effort: unknown variant `xhigh`, expected one of `low`, `medium`, `high`"),
    ("Qwen3.8-27B", {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]}, 400,
     "Unexpected message role."),
    ("Qwen3.8-Flash-Next", {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]}, 422,
     "Failed to deserialize the JSON body into the target type: messages[0]: unknown role: developer"),
    ("GLM-5.3-Flash", {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]}, 422,
     "Failed to deserialize the JSON body into the target type: messages[0]: unknown role: developer"),
    ("MiniCPM5-2B", {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}]}, 422,
     "Failed to deserialize the JSON body into the target type: messages[0]: unknown role: developer"),
    ("Qwen3.8-27B", {"messages": [{"role": "user", "content": "y"}, {"role": "system", "content": "x"}]}, 400,
     "System message must be at the beginning"),
    ("DeepSeek-V4-Flash", {"thinking": {"type": "enabled", "budget_tokens": 100}}, 400,
     '"thinking" is not supported on /v1/chat/completions and was not applied. '
     'Use "reasoning_effort" (or "reasoning.effort") to control thinking.'),
    ("DeepSeek-V4-Flash", {"reasoning": {"enabled": True}}, 400,
     '"reasoning.enabled" is not supported on /v1/chat/completions and was not applied. '
     'Use "reasoning_effort" (or "reasoning.effort") to control thinking.'),
    ("DeepSeek-V4-Flash", {"reasoning": {"effort": "low"}, "reasoning_effort": "low"}, 400,
     "Cannot specify both reasoning_effort and reasoning.effort. Use one or the other."),
    ("MiniCPM5-1B", {}, 400, "Requested model MiniCPM5-1B not supported"),
    ("DeepSeek-V4-Flash-0731", {}, 400, "Requested model DeepSeek-V4-Flash-0731 not supported"),
    ("GLM-5.3-Flash", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}, 400,
     "Model GLM-5.3-Flash does not support image input."),
]  # fmt: skip


@pytest.mark.parametrize(("model_id", "fields", "status", "text"), REJECTIONS)
def test_rejections_keep_their_status_and_text(
    demo_web: WebProcess, demo_installation: Installation, model_id: str, fields: dict[str, Any], status: int, text: str
) -> None:
    body = {"model": model_id, "messages": [{"role": "user", "content": "Hello"}], **fields}
    headers = {"Authorization": f"Bearer {demo_installation.secret}"}
    answer = httpx.post(f"{demo_web.url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == status
    assert text in answer.json()["error"]["message"]


def test_each_request_leaves_one_rated_record(client: openai.OpenAI, demo_installation: Installation) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="DeepSeek-V4-Flash", messages=[{"role": "user", "content": "Once [[tokens=30]]"}]
    )
    request_id = raw.headers["x-request-id"].replace("-", "")
    usage = raw.parse().usage
    assert usage is not None
    sql = f"select completion_tokens, rated_at is not null from billing_usagerecord where id = '{request_id}'"
    wait_until(lambda: demo_installation.query(sql) == [[usage.completion_tokens, 1]], what="the rated record")
    charged = f"select meter, amount_ppt from billing_charge where record_id = '{request_id}'"
    amounts = dict(demo_installation.query(charged))
    assert amounts["output"] == usage.completion_tokens * 280_000


def _stream(client: openai.OpenAI, model_id: str, *, prompt: str) -> tuple[str, str, Any]:
    content, thinking, usage = "", "", None
    for chunk in client.chat.completions.create(
        model=model_id,
        messages=[{"role": "user", "content": prompt}],
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            thinking += getattr(choice.delta, "reasoning", None) or ""
    return content, thinking, usage
