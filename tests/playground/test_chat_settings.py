"""The request that settings stand for, and what each model lets one set."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.catalog import Model, load, unknown_model
from playground.chat_settings import SettingsForm, request_body, thinking_control

CATALOG = load()
HELLO = [{"role": "user", "content": "Hello"}]


def body(model: str, **settings: Any) -> dict[str, Any]:
    return request_body(model=CATALOG[model], settings=settings, messages=HELLO)


def test_without_settings_only_model_and_messages_go_out() -> None:
    assert body("Qwen3.8-27B") == {"model": "Qwen3.8-27B", "messages": HELLO, "stream": True}


def test_settings_go_out_under_their_names() -> None:
    sent = body("Qwen3.8-27B", temperature=0, top_p=0.9, max_tokens=100, effort="low", system=" Be brief. ")
    assert sent == {
        "model": "Qwen3.8-27B",
        "messages": [{"role": "system", "content": "Be brief."}, *HELLO],
        "stream": True,
        "temperature": 0,
        "top_p": 0.9,
        "max_tokens": 100,
        "reasoning_effort": "low",
    }


def test_the_thinking_switch_goes_only_to_models_that_have_it() -> None:
    assert body("Gemma-4-31B-IT", thinking=True)["chat_template_kwargs"] == {"enable_thinking": True}
    assert "chat_template_kwargs" not in body("Qwen3.8-27B", thinking=True)


def test_an_effort_kept_from_another_model_is_not_sent() -> None:
    assert "reasoning_effort" not in body("Qwen3.8-27B", effort="high")


@pytest.mark.parametrize(
    ("model", "efforts", "default"),
    [
        (
            "DeepSeek-V4-Flash",
            ["", "none", "minimal", "low", "medium", "high", "xhigh", "max"],
            "Default (does not think)",
        ),
        ("Qwen3.8-Flash-Next", ["", "none", "low", "medium", "xhigh"], "Default (xhigh)"),
        ("Qwen3.8-27B", ["", "low", "medium", "xhigh"], "Default (xhigh)"),
        ("GLM-5.3-Flash", ["", "low", "medium", "high"], "Default (thinks)"),
    ],
)
def test_efforts_are_those_the_model_takes(model: str, efforts: list[str], default: str) -> None:
    control = thinking_control(CATALOG[model])
    assert [effort.value for effort in control.efforts] == efforts
    assert control.efforts[0].label == default


@pytest.mark.parametrize("model", ["MiniCPM-V-4.7-1B", "MiniCPM-V-4.7-35B-A3B", "Gemma-4-31B-IT"])
def test_some_models_have_a_switch(model: str) -> None:
    assert thinking_control(CATALOG[model]).switch


@pytest.mark.parametrize("model", ["MiMo-V2.6-Flash", "MiniCPM5-2B"])
def test_some_models_have_nothing_to_set_and_say_why(model: str) -> None:
    control = thinking_control(CATALOG[model])
    assert not control.efforts
    assert not control.switch
    assert control.reason


def form(**data: str) -> SettingsForm:
    models: list[Model] = [CATALOG["Qwen3.8-27B"], unknown_model("mine")]
    return SettingsForm({"model": "Qwen3.8-27B"} | data, models=models)


def test_zero_is_kept_and_what_says_nothing_is_not() -> None:
    chosen = form(temperature="0", top_p="", system="")
    assert chosen.is_valid()
    assert chosen.settings() == {"temperature": 0.0}


@pytest.mark.parametrize("data", [{"model": "x"}, {"effort": "high"}, {"temperature": "2.1"}, {"max_tokens": "0"}])
def test_what_the_model_would_refuse_is_refused_before(data: dict[str, str]) -> None:
    assert not form(**data).is_valid()
