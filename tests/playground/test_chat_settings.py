"""What each model lets one set, and why not where it does not."""

from __future__ import annotations

import pytest

from gateway.catalog import EFFORTS, load
from playground.chat_settings import controls_of, thinking_control

CATALOG = load()


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


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("model", ["MiMo-V2.6-Flash", "MiniCPM5-2B"])
def test_some_models_have_nothing_to_set_and_say_why(*, model: str, portable: bool) -> None:
    control = thinking_control(CATALOG[model], portable=portable)
    assert not control.efforts
    assert not control.switch
    assert control.reason


@pytest.mark.parametrize(
    ("model", "labels"),
    [
        ("DeepSeek-V4-Flash", ["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
        (
            "Qwen3.8-27B",
            ["none → low", "minimal → low", "low", "medium", "high → xhigh", "xhigh", "max → xhigh"],
        ),
        ("Gemma-4-31B-IT", ["none → thinking off", *(f"{tier} → thinking on" for tier in EFFORTS[1:])]),
    ],
)
def test_portable_mode_offers_every_tier_and_says_what_becomes_of_it(model: str, labels: list[str]) -> None:
    efforts = thinking_control(CATALOG[model], portable=True).efforts
    assert [effort.label for effort in efforts[1:]] == labels


def test_a_reason_stands_for_what_a_model_ignores() -> None:
    text_only, wide = controls_of(CATALOG["MiniCPM5-2B"]), controls_of(CATALOG["Qwen/Qwen3-30B-A3B-FP8"])
    assert (str(text_only.images), str(text_only.stop)) == (
        "This model reads text only.",
        "Stop sequences are not passed on to this model.",
    )
    assert (wide.stop, wide.tools, wide.json_object, wide.json_schema) == ("", "", "", "")
    assert controls_of(CATALOG["Qwen3.8-27B"]).images == ""
