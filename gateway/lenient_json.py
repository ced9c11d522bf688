"""Answers of model servers that are almost JSON.

Some write NaN where a number failed, half a surrogate pair where a text was cut, or bytes that are no UTF-8.
Strict parsers refuse all of it; an answer that a server has worked for, and its usage, should not be lost over that.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson


def mended(data: bytes) -> bytes:
    """The same document for strict parsers, empty where there is none: NaN and infinities are null, what is no
    character is U+FFFD. Slow: for what a strict parser has refused."""
    try:
        document = json.loads(
            data.decode("utf-8", "replace"), parse_constant=lambda name: None, parse_float=_finite_or_none
        )
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError):
        return b""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def loads(data: bytes) -> Any:
    """Raises ValueError for what is not even almost JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return orjson.loads(mended(data))


def dumps(document: Any) -> bytes:
    """Raises ValueError for what was nested too deeply to be written again: half of what can be read is."""
    try:
        return orjson.dumps(document)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _finite_or_none(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
