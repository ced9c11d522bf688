"""First messages that show what a model is good for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _


def example_tools() -> str:
    """A tool to try, described in the reader's language."""
    city = {"type": "string"}
    unit = {"enum": ["celsius", "fahrenheit"]}
    parameters = {"type": "object", "properties": {"city": city, "unit": unit}, "required": ["city"]}
    tool = {"name": "get_weather", "description": gettext("Current weather in a city"), "parameters": parameters}
    return json.dumps([tool], ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Starter:
    icon: str
    title: str | Promise
    prompt: str | Promise
    # Fields beside the chat that go with it, by their ids.
    settings: Callable[[], dict[str, str]] = dict

    @property
    def settings_json(self) -> str:
        return json.dumps(self.settings())


STARTERS = (
    Starter(
        "code", _("Write code"), _("Write a Python function that merges overlapping time ranges, with three tests.")
    ),
    Starter(
        "sigma",
        _("Work something out"),
        _("Derive the quadratic formula step by step, with the formulas set as mathematics."),
    ),
    Starter(
        "table-2", _("Compare"), _("Compare SQLite and PostgreSQL for a small team's web application, as a table.")
    ),
    Starter(
        "languages",
        _("Translate"),
        _("Translate into Chinese and English, and explain the hard words: Festina lente."),
    ),
    Starter(
        "braces",
        _("Get JSON"),
        _("The parcel for Ms Chen in Chengdu weighs 2.4 kg and is two days late. Give the facts as JSON."),
        lambda: {"id_format": "json_object"},
    ),
    Starter("wrench", _("Use a tool"), _("What is the weather in Chengdu?"), lambda: {"id_tools": example_tools()}),
)
