"""The OpenAPI description says what the routes and the checks do: nothing more, nothing less."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway import account_api, app, fields, ocr_schema, openapi, schema, speech_schema, systemone_schema
from gateway.errors import InvalidRequest

DESCRIPTION: dict[str, Any] = json.loads(app._description())
TABLES: dict[str, Any] = {
    "chat/completions": schema.FIELDS,
    "ocr": ocr_schema.FIELDS,
    "audio/speech": speech_schema.FIELDS,
    "systemone": systemone_schema.FIELDS,
}
# Values at and around every edge that a schema can draw.
PROBES: list[Any] = [
    "", "text", "json_object", "wav", 0, 1, 2, 3, -2, -2.5, 0.25, 0.2, 0.5, 1.5, 4, 4.5, 10**20, True, False, [], {},
    [{}], ["a"], ["a"] * 4, ["a"] * 5, [{"type": "function"}], {"type": "text"}, {"type": "xml"}, {"type": 7},
    [{"role": "user", "content": "a"}], [{"role": "nobody", "content": "a"}], [7],
]  # fmt: skip


def takes(described: dict[str, Any], value: Any) -> bool:
    """As much of JSON Schema as the description uses."""
    if "anyOf" in described:
        return any(takes(one, value) for one in described["anyOf"])
    kinds: dict[str, Any] = {
        "string": str, "boolean": bool, "object": dict, "array": list, "null": type(None), "integer": int,
        "number": (int, float),
    }  # fmt: skip
    kind = described.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (kind in ("integer", "number") and isinstance(value, bool))):
        return False
    if "enum" in described and value not in described["enum"]:
        return False
    if kind in ("integer", "number"):
        return bool(described.get("minimum", value) <= value <= described.get("maximum", value))
    if kind == "array":
        size = described.get("minItems", 0) <= len(value) <= described.get("maxItems", len(value))
        return size and all(takes(described.get("items", {}), item) for item in value)
    if kind == "object":
        properties = described.get("properties", {})
        present = all(name in value for name in described.get("required", []))
        return present and all(takes(properties[name], value[name]) for name in properties if name in value)
    return True


def test_every_route_is_described_and_nothing_else() -> None:
    routes = {f"/v1/{path}": set(methods) for path, methods in app.ROUTES.items()}
    routes |= {path: set(methods) for path, methods in account_api.ROUTES.items()}
    routes["/v1/models/{id}"] = {"GET"}
    described = {path: {method.upper() for method in item} for path, item in DESCRIPTION["paths"].items()}
    assert described.pop("/spaces/{endpoint}/v1/{path}") == {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert described == routes


def test_every_route_has_a_summary_of_its_own() -> None:
    assert set(openapi.SUMMARIES) == set(DESCRIPTION["paths"])


@pytest.mark.parametrize("path", TABLES)
def test_a_body_has_exactly_the_fields_that_are_checked(path: str) -> None:
    assert list(openapi.body_schema(path)["properties"]) == list(TABLES[path])


@pytest.mark.parametrize(
    ("path", "name"),
    [(path, name) for path, table in TABLES.items() for name in table if (path, name) not in openapi.TOLD],
)
def test_a_field_takes_what_its_check_takes(path: str, name: str) -> None:
    described, check = openapi.body_schema(path)["properties"][name], TABLES[path][name]
    for value in PROBES:
        try:
            check(value, name)
            passed = True
        except InvalidRequest:
            passed = False
        if name in ("messages", "tools") and takes(described, value):
            # What stands inside is described in less detail than it is checked.
            continue
        assert takes(described, value) == passed, value


def test_bounds_come_from_the_checks_themselves() -> None:
    assert openapi._made(fields.number(0.25, 4)) == {"type": "number", "minimum": 0.25, "maximum": 4}
    assert openapi._made(fields.one_of("a", "b")) == {"type": "string", "enum": ["a", "b"]}
    with pytest.raises(LookupError, match="takes"):
        openapi._made(schema._parts)
