"""What is almost JSON becomes JSON; what is JSON stays what it is, and what is none stays none."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.lenient_json import loads, mended


@pytest.mark.parametrize(
    ("data", "document"),
    [
        (b'{"a": NaN, "b": [Infinity, -Infinity, 1e999, -1e999]}', {"a": None, "b": [None] * 4}),
        (b'"half \\ud83d"', "half \ufffd"),
        (b'"\\ude00 other half"', "\ufffd other half"),
        (b'"whole \\ud83d\\ude00"', "whole 😀"),
        (b'"\\\\ud83d"', "\\ud83d"),
        (b'{"\\ud83d": 1}', {"\ufffd": 1}),
        (b'"no \xff UTF-8 \xe4\xb8"', "no \ufffd UTF-8 \ufffd"),
        (b'"a\\u0000b\\u2028"', "a\0b\u2028"),
    ],
)
def test_what_is_almost_json_is_read(data: bytes, document: Any) -> None:
    assert orjson.loads(mended(data)) == document
    assert loads(data) == document


@pytest.mark.parametrize("data", [b"", b"OK", b"{", b'{"a": nan}', b"<html>", b"{}{}", b"[" * 100_000, b"1" * 10_000])
def test_what_is_no_json_is_none(data: bytes) -> None:
    assert mended(data) == b""
    with pytest.raises(ValueError, match=r"\S"):
        loads(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
        max_leaves=20,
    )
)  # fmt: skip
def test_what_is_json_stays_what_it_is(document: Any) -> None:
    data = orjson.dumps(document)
    assert orjson.loads(mended(data)) == document == loads(data)


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    if mended(data):
        orjson.loads(mended(data))
