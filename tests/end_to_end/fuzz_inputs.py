"""What fuzz tests send: JSON of any kind, documents that fit a described schema, and such that almost do.

FUZZ_EXAMPLES is how many inputs each test makes; above the default they are new ones in each run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from gateway.openapi import BODIES, body_schema
from tests.documents import data_url, png

DEFAULT_EXAMPLES = 50
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", DEFAULT_EXAMPLES))
# Under load an input may take a tenth of a second.
TIMEOUT_SECONDS = 300 + EXAMPLES // 4
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= DEFAULT_EXAMPLES,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)

PATHS = list(BODIES)
PICTURE = data_url(png(8, 8), "image/png")
VALID: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": "Hi [[tokens=2]]"}]},
    "messages": {
        "model": "DeepSeek-V4-Flash", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi [[tokens=2]]"}],
    },
    "messages/count_tokens": {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": "Hi"}]},
    "ocr": {"model": "MinerU2.5-Pro", "document": {"type": "image_url", "image_url": PICTURE}},
    "audio/speech": {"model": "OmniVoice", "input": "Hi"},
    "systemone": {
        "model": "Clef", "state": "It rains.",
        "questions": {"wet": {"type": "noul", "instructions": "Is it wet?", "criteria": "Water falls."}},
    },
}  # fmt: skip
NAMES = sorted({name for path in PATHS for name in body_schema(path)["properties"]})

texts = st.text(st.characters(codec="utf-8"), max_size=12)
integers = st.integers(-(10**20), 10**20)
scalars = st.none() | st.booleans() | integers | st.floats(allow_nan=False) | texts
words = st.sampled_from(
    ["role", "content", "type", "text", "user", "assistant", "tool", "system", "image_url", "url", "tool_calls",
     "function", "name", "arguments", "json_schema", "effort", "criteria", "noul", "choice", "score", "tool_use",
     "tool_result", "tool_use_id", "id", "input", "input_schema", "image", "source", "base64", "data", "media_type",
     "thinking", "document_url", "instructions", "options", PICTURE]
)  # fmt: skip
values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | texts, inner, max_size=3),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(NAMES) | texts, values, max_size=6)
RAW: list[bytes] = [
    b"", b"null", b"[]", b"7", b'"a"', b"{", b"{}x", b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}', b'{"a":"\xff"}',
    b'{"a":"\\ud800"}', b'\xef\xbb\xbf{}', b"\x00", b"[" * 100_000, b'{"a":' * 50_000, b"<html>", b"a=1&b=2",
    b'{"model":"DeepSeek-V4-Flash","model":7}', b"1" * 10_000, b'{"messages":' + b"[" * 500 + b"]" * 500 + b"}",
]  # fmt: skip


def fitting(described: dict[str, Any]) -> st.SearchStrategy[Any]:
    """JSON that a schema of our own description takes, in as much of JSON Schema as it uses."""
    if "anyOf" in described:
        return st.one_of([fitting(one) for one in described["anyOf"]])
    if "const" in described or "enum" in described:
        return st.sampled_from(described.get("enum") or [described["const"]])
    kind = described.get("type")
    return _OF_KIND[kind](described) if isinstance(kind, str) else values


def _object(described: dict[str, Any]) -> st.SearchStrategy[Any]:
    properties = {name: fitting(one) for name, one in described.get("properties", {}).items()}
    required = {name: properties.pop(name, values) for name in described.get("required", [])}
    known = st.fixed_dictionaries(required, optional=properties)
    if "additionalProperties" not in described:
        return known | values.filter(lambda value: isinstance(value, dict)) if not (required or properties) else known
    others = fitting(described["additionalProperties"])
    return st.dictionaries(texts, others, min_size=described.get("minProperties", 0), max_size=3)


def _array(described: dict[str, Any]) -> st.SearchStrategy[Any]:
    items = fitting(described["items"]) if "items" in described else values
    return st.lists(items, min_size=described.get("minItems", 0), max_size=min(3, described.get("maxItems", 3)))


def _text(described: dict[str, Any]) -> st.SearchStrategy[Any]:
    least = described.get("minLength", 0)
    return words | st.text(st.characters(codec="utf-8"), min_size=least, max_size=max(least, 12))


_OF_KIND: dict[str, Callable[[dict[str, Any]], st.SearchStrategy[Any]]] = {
    "object": _object,
    "array": _array,
    "string": _text,
    "integer": lambda described: st.integers(described.get("minimum", -10), described.get("maximum", 10**20)),
    "number": lambda described: st.floats(described.get("minimum", -1e9), described.get("maximum", 1e9)),
    "boolean": lambda described: st.booleans(),
    "null": lambda described: st.none(),
}


@st.composite
def bent(draw: st.DrawFn, described: dict[str, Any]) -> Any:
    """A fitting document in which one thing somewhere has become something else."""
    document = draw(fitting(described))
    at: Any = document
    while isinstance(at, dict | list) and at:
        place = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[place], dict | list) or not at[place] or draw(st.booleans()):
            at[place] = draw(values)
            break
        at = at[place]
    return document
