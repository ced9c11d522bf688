"""Base64 `data:` URLs: what kind of thing is inside, and its bytes."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from gateway.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Inline:
    media_type: str
    data: bytes


def read_data_url(url: str, *, param: str, limit_bytes: int) -> Inline:
    """Raises InvalidRequest for what is malformed (400) or larger than the limit (413)."""
    head, comma, encoded = url.partition(",")
    media_type, _, parameters = head[5:].partition(";")
    if head[:5].lower() != "data:" or not comma or parameters.lower().split(";")[-1].strip() != "base64":
        raise InvalidRequest(f"{param} must be a base64 data URL", param=param)
    if len(encoded) > limit_bytes // 3 * 4 + 4:
        raise too_large(param, limit_bytes)
    data = _decoded(encoded, param)
    if len(data) > limit_bytes:
        raise too_large(param, limit_bytes)
    return Inline(media_type.strip().lower() or "text/plain", data)


def data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode('ascii')}"


def too_large(param: str, limit_bytes: int) -> InvalidRequest:
    text = f"{param} is larger than {limit_bytes // (1024 * 1024)} MiB"
    return InvalidRequest(text, status=413, code="request_too_large", param=param)


def _decoded(encoded: str, param: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"{param} holds base64 that cannot be decoded", param=param) from None
