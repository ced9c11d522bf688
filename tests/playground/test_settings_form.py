"""What is checked before anything is sent, and what of it is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict

from gateway.catalog import Model, load, unknown_model
from playground.comparison_form import ComparisonForm
from playground.settings_form import MessageForm, SettingsForm, as_typed

CATALOG = load()
MODELS: list[Model] = [CATALOG["Qwen3.8-27B"], CATALOG["MiniCPM5-2B"], CATALOG["GLM-5.3-Flash"], unknown_model("mine")]
TOOL = '{"name": "f", "parameters": {"type": "object"}}'
PNG = b"\x89PNG\r\n\x1a\n rest"


def form(**data: str) -> SettingsForm:
    return SettingsForm({"model": "Qwen3.8-27B"} | data, models=MODELS)


def message(*pictures: bytes, **data: str) -> MessageForm:
    files = MultiValueDict({"images": [SimpleUploadedFile("a.png", data) for data in pictures]})
    return MessageForm({"model": "Qwen3.8-27B", "message": "Hi"} | data, files, models=MODELS)


def errors(checked: Any) -> str:
    return " ".join(text for texts in checked.errors.values() for text in texts)


def test_zero_is_kept_and_what_says_nothing_is_not() -> None:
    chosen = form(temperature="0", top_p="", system="", tools="", stop=" \n")
    assert chosen.is_valid()
    assert chosen.settings() == {"temperature": 0.0}


@pytest.mark.parametrize(
    "data",
    [
        {"model": "x"},
        {"effort": "high"},
        {"temperature": "2.1"},
        {"max_tokens": "0"},
        {"presence_penalty": "-2.5"},
        {"format": "yaml"},
        {"format": "json_schema"},
        {"schema": "{"},
        {"tools": "[1"},
        {"tool_choice": "sometimes"},
        {"stop": "a\nb\nc\nd\ne"},
    ],
)
def test_what_the_model_would_refuse_is_refused_before(data: dict[str, str]) -> None:
    assert not form(**data).is_valid()


def test_portable_mode_takes_every_tier() -> None:
    chosen = form(effort="high", portable="on")
    assert chosen.is_valid()
    assert chosen.settings() == {"effort": "high", "portable": True}


def test_settings_come_back_as_they_were_typed() -> None:
    chosen = form(tools=TOOL, schema='{"type": "object"}', format="json_schema", stop="a\nb", temperature="0.5")
    assert chosen.is_valid()
    typed = as_typed(chosen.settings())
    again = form(**{name: str(value) for name, value in typed.items()})
    assert again.is_valid()
    assert again.settings() == chosen.settings()
    assert json.loads(typed["tools"])[0]["function"]["name"] == "f"


def test_a_message_needs_words_or_a_picture() -> None:
    assert errors(message(message=" \n ")) == "Write a message first."
    assert message(PNG, message="").is_valid()


def test_pictures_go_only_to_models_that_see_them() -> None:
    assert "MiniCPM5-2B reads text only." in errors(message(PNG, model="MiniCPM5-2B"))


def compared(*models: str, pictures: tuple[bytes, ...] = (), **data: str) -> ComparisonForm:
    query = QueryDict(mutable=True)
    query.setlist("model", list(models))
    query.update({"message": "Hi"} | data)
    files = MultiValueDict({"images": [SimpleUploadedFile("a.png", data) for data in pictures]})
    return ComparisonForm(query, files, models=MODELS)


def test_a_comparison_is_of_two_to_four_different_models() -> None:
    assert compared("Qwen3.8-27B", "", "MiniCPM5-2B").is_valid()
    for models in [("Qwen3.8-27B",), ("Qwen3.8-27B", "Qwen3.8-27B"), ("mine", "x"), ()]:
        assert not compared(*models).is_valid()


def test_a_comparison_fits_one_effort_to_every_model() -> None:
    chosen = compared("Qwen3.8-27B", "MiniCPM5-2B", effort="high")
    assert chosen.is_valid()
    assert [(one.model.id, one.settings) for one in chosen.all_chosen()] == [
        ("Qwen3.8-27B", {"effort": "high", "portable": True}),
        ("MiniCPM5-2B", {"effort": "high", "portable": True}),
    ]


def test_a_comparison_names_the_models_that_see_no_pictures() -> None:
    text = errors(compared("Qwen3.8-27B", "MiniCPM5-2B", "GLM-5.3-Flash", pictures=(PNG,)))
    assert ("MiniCPM5-2B" in text, "GLM-5.3-Flash" in text, "Qwen3.8-27B" in text) == (True, True, False)
