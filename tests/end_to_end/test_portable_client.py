"""One awkward request of the official `openai` client, sent to every chat model of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from gateway.catalog import load
from tests.installation import Installation, WebProcess

CHAT_MODELS = [model.id for model in load().chat_models()]
PORTABLE = {"x-portable": "1"}
AWKWARD: Any = {
    "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Name a river."},
        {"role": "assistant", "content": "The Rhine."},
        {"role": "system", "content": "Answer in English."},
        {"role": "user", "content": "Name another. [[tokens=20]]"},
    ],
    "reasoning_effort": "high",
    "max_completion_tokens": 4_000,
}


@pytest.fixture(scope="module")
def client(demo_web: WebProcess, demo_installation: Installation) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{demo_web.url}/v1", api_key=demo_installation.secret, max_retries=0) as client:
        yield client


@pytest.mark.parametrize("model_id", CHAT_MODELS)
def test_the_same_code_works_on_every_model(client: openai.OpenAI, model_id: str) -> None:
    raw = client.chat.completions.with_raw_response.create(model=model_id, extra_headers=PORTABLE, **AWKWARD)
    answer = raw.parse()
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content
    assert raw.headers["x-adapted"].endswith("max_completion_tokens->max_tokens")
    assert "x-dropped-params" not in raw.headers


@pytest.mark.parametrize("model_id", CHAT_MODELS)
def test_it_works_as_a_stream(client: openai.OpenAI, model_id: str) -> None:
    chunks = list(client.chat.completions.create(model=model_id, extra_headers=PORTABLE, stream=True, **AWKWARD))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_what_was_changed_is_named(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="Qwen3.8-27B", extra_headers=PORTABLE, **AWKWARD)
    assert raw.headers["x-adapted"] == (
        "developer->system, system-merged, reasoning_effort:high->xhigh, max_completion_tokens->max_tokens"
    )


def test_a_key_can_be_set_so_and_a_request_can_say_otherwise(
    client: openai.OpenAI, demo_installation: Installation
) -> None:
    secret = demo_installation.run_python(
        "import django; django.setup()\nfrom accounts.keys import KeyTerms, issue_key\n"
        "from accounts.models import Team\nterms = KeyTerms(portable=True)\n"
        "print(issue_key(team=Team.objects.first(), created_by=None, name='portable', terms=terms).secret)"
    ).strip()
    portable = client.with_options(api_key=secret)
    raw = portable.chat.completions.with_raw_response.create(model="GLM-5.3-Flash", **AWKWARD)
    assert raw.headers["x-adapted"] == "developer->system, max_completion_tokens->max_tokens"
    with pytest.raises(openai.UnprocessableEntityError):
        portable.chat.completions.create(model="GLM-5.3-Flash", extra_headers={"x-portable": "0"}, **AWKWARD)


def test_without_the_header_the_backend_judges_the_request_as_it_is(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="Qwen3.8-27B", **AWKWARD)
    assert "x-adapted" not in refused.value.response.headers
    raw = client.chat.completions.with_raw_response.create(model="DeepSeek-V4-Flash", **AWKWARD)
    assert raw.headers["x-dropped-params"] == "max_completion_tokens"
