"""Who thinks, how long, under which field, and on whose tokens."""

import pytest

from gateway.demo.tokens import count
from tests.gateway.demo.client import Demo, user

BY_DEFAULT = {
    "DeepSeek-V4-Flash": False,
    "DeepSeek-V4-Flash-Vision-Exp": False,
    "DeepSeek-V4.1-Flash": False,
    "Qwen3.8-Flash-Next": True,
    "Qwen3.8-27B": True,
    "GLM-5.3-Flash": True,
    "MiMo-V2.6-Flash": True,
    "MiniCPM5-2B": False,
    "MiniCPM-V-4.7-1B": False,
    "MiniCPM-V-4.7-35B-A3B": False,
    "Gemma-4-31B-IT": False,
    "Qwen/Qwen3-30B-A3B-FP8": False,
}


def thought(message: dict[str, str]) -> str:
    return message.get("reasoning") or message.get("reasoning_content") or ""


@pytest.mark.parametrize(("model", "thinks"), BY_DEFAULT.items())
def test_without_a_thinking_parameter(demo: Demo, model: str, thinks: bool) -> None:
    message = demo.message(model=model)
    assert bool(thought(message)) is thinks
    assert message["content"]


@pytest.mark.parametrize(
    "model", ["DeepSeek-V4-Flash", "DeepSeek-V4.1-Flash", "Qwen3.8-Flash-Next", "Qwen3.8-27B", "GLM-5.3-Flash"]
)
def test_a_higher_tier_thinks_longer(demo: Demo, model: str) -> None:
    top = "high" if model == "GLM-5.3-Flash" else "xhigh"
    lengths = [count(thought(demo.message(model=model, reasoning_effort=tier))) for tier in ("low", "medium", top)]
    assert lengths[0] * 1.4 < lengths[1]
    assert lengths[1] * 1.4 < lengths[2]


@pytest.mark.parametrize("model", ["Qwen3.8-Flash-Next", "Qwen3.8-27B"])
def test_both_qwen_default_to_xhigh(demo: Demo, model: str) -> None:
    assert thought(demo.message(model=model)) == thought(demo.message(model=model, reasoning_effort="xhigh"))


@pytest.mark.parametrize("model", ["DeepSeek-V4-Flash", "Qwen3.8-Flash-Next"])
def test_none_turns_thinking_off(demo: Demo, model: str) -> None:
    assert thought(demo.message(model=model, reasoning_effort="none")) == ""


def test_mimo_thinks_the_same_at_every_tier(demo: Demo) -> None:
    tiers = ["none", "minimal", "low", "medium", "high", "xhigh", "max", None]
    texts = {thought(demo.message(model="MiMo-V2.6-Flash", reasoning_effort=tier)) for tier in tiers}
    assert len(texts) == 1
    assert texts != {""}


@pytest.mark.parametrize("model", ["MiniCPM-V-4.7-1B", "MiniCPM-V-4.7-35B-A3B", "Gemma-4-31B-IT"])
def test_the_template_switch_turns_thinking_on(demo: Demo, model: str) -> None:
    assert thought(demo.message(model=model, chat_template_kwargs={"enable_thinking": True}))
    assert not thought(demo.message(model=model, chat_template_kwargs={"enable_thinking": False}))
    assert not thought(demo.message(model=model, reasoning_effort="high"))


def test_minicpm5_never_thinks(demo: Demo) -> None:
    answer = demo.complete(model="MiniCPM5-2B", reasoning_effort="high", chat_template_kwargs={"enable_thinking": True})
    assert not thought(answer["choices"][0]["message"])
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize(("model", "older"), [("GLM-5.3-Flash", True), ("Qwen3.8-27B", False)])
def test_some_servers_use_the_older_name_of_the_field(demo: Demo, model: str, older: bool) -> None:
    field, other = ("reasoning_content", "reasoning") if older else ("reasoning", "reasoning_content")
    message = demo.message(model=model)
    assert (field in message, other in message) == (True, False)
    streamed = demo.stream(model=model)
    assert streamed.joined(field) == message[field]
    assert streamed.joined(other) == ""


def test_thinking_streams_before_content(demo: Demo) -> None:
    deltas = demo.stream(model="Qwen3.8-27B").deltas
    kinds = ["reasoning" if "reasoning" in delta else "content" for delta in deltas[1:-1]]
    assert kinds == sorted(kinds, reverse=True)


def test_thinking_spends_max_tokens(demo: Demo) -> None:
    answer = demo.complete(model="Qwen3.8-27B", max_tokens=50)
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == ""
    assert count(choice["message"]["reasoning"]) == 50
    assert answer["usage"]["completion_tokens"] == 50


def test_a_wished_thinking_length_is_exact(demo: Demo) -> None:
    message = demo.message(model="Qwen3.8-27B", messages=[user("Why? [[thinking=77]]")])
    assert count(message["reasoning"]) == 77
