"""JSON mode: a document, and one that fits the schema where a schema was given."""

import json
from typing import Any

import pytest

from gateway.demo.schema_example import example
from gateway.demo.subject import study
from tests.gateway.demo.client import Demo, user

SUBJECT = study("Book a table in Lyon for 4 people, urgent")


def test_json_object(demo: Demo) -> None:
    message = demo.message(response_format={"type": "json_object"}, messages=[user("What is ROCm?")])
    document = json.loads(message["content"])
    assert (document["demo"], document["topic"]) == (True, "What is ROCm?")


def test_json_schema(demo: Demo) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "guests": {"type": "integer"}},
        "required": ["city", "guests"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "booking", "strict": True, "schema": schema}}
    streamed = demo.stream(response_format=form, messages=[user("Book a table in Lyon for 4 people")])
    assert json.loads(streamed.joined("content")) == {"city": "Lyon", "guests": 4}


def test_plain_text_format_is_an_ordinary_answer(demo: Demo) -> None:
    assert demo.message(response_format={"type": "text"})["content"].startswith("## What is ROCm?")


def test_a_json_schema_without_schema_is_refused(demo: Demo) -> None:
    status, _ = demo.refused(response_format={"type": "json_schema"})
    assert status == 400


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, 4),
        ({"type": "integer", "minimum": 10}, 10),
        ({"type": "integer", "exclusiveMaximum": 4}, 1),
        ({"type": "integer", "multipleOf": 5, "minimum": 6}, 10),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, 0.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "boolean"]}, True),
        ({"const": 7}, 7),
        ({"enum": ["later", "urgent"]}, "urgent"),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "maxLength": 3}, "Boo"),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [4, 4]),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, []),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 4),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"const": 3}}}, 3),
        (
            {
                "allOf": [
                    {"properties": {"a": {"const": 1}}, "required": ["a"]},
                    {"properties": {"b": {"const": 2}}, "required": ["b"]},
                ]
            },
            {"a": 1, "b": 2},
        ),
        ({}, "Book"),
    ],
)
def test_documents_fit_their_schema(schema: dict[str, Any], expected: object) -> None:
    assert example(schema, subject=SUBJECT) == expected


def test_a_schema_that_contains_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    found = example({"$ref": "#/$defs/node", "$defs": {"node": node}}, subject=SUBJECT)
    depth = 0
    while found and found["next"]:
        found, depth = found["next"], depth + 1
    assert 1 < depth < 20
