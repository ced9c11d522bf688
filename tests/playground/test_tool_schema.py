"""Tools and schemas as people have them at hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from playground.tool_schema import parse_schema, parse_tools

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS}
OPENAI = {"type": "function", "function": FUNCTION}
ANTHROPIC = {"name": "get_weather", "description": "Weather", "input_schema": PARAMETERS}


@pytest.mark.parametrize("document", [[OPENAI], OPENAI, FUNCTION, [FUNCTION], ANTHROPIC, [ANTHROPIC]])
def test_every_usual_form_becomes_openais(document: Any) -> None:
    assert parse_tools(json.dumps(document)) == [OPENAI]


def test_a_tool_without_parameters_takes_none() -> None:
    (tool,) = parse_tools('{"name": "now"}')
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[\n {", "Tools: this is not JSON (line 2, column 3)."),
        ("3", "Tool 1 needs a name of up to 64 letters, digits, dashes and underscores."),
        ('[{"name": "a"}, {"name": "b c"}]', "Tool 2 needs a name"),
        ('[{"name": "a"}, {"name": "a"}]', "Tools: “a” is there twice."),
        ('{"name": "a", "parameters": []}', "The parameters of “a” must be a JSON schema, an object."),
        ("[" * 100_000, "this is"),
        (json.dumps([{"name": f"t{number}"} for number in range(65)]), "Tools: at most 64."),
    ],
)
def test_what_is_wrong_is_said_where(text: str, message: str) -> None:
    with pytest.raises(ValidationError) as error:
        parse_tools(text)
    assert message in error.value.messages[0]


@pytest.mark.parametrize(
    "document",
    [
        PARAMETERS,
        {"name": "answer", "schema": PARAMETERS},
        {"type": "json_schema", "json_schema": {"name": "answer", "schema": PARAMETERS}},
    ],
)
def test_a_schema_may_be_wrapped_or_bare(document: Any) -> None:
    assert parse_schema(json.dumps(document)) == {"name": "answer", "schema": PARAMETERS}


def test_a_schema_is_an_object() -> None:
    with pytest.raises(ValidationError):
        parse_schema("[]")
