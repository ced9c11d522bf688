"""JSON that a model wrote: in order where it is JSON, as it came where it is not."""

from __future__ import annotations

import json

from django.utils.safestring import SafeString

from playground.markdown import code_html
from playground.tool_schema import pretty

# Opens a code block that no JSON can close by itself.
OPENING = "````````json\n"


def formatted(text: str) -> str | None:
    """None where it is no JSON, or none whole."""
    try:
        return pretty(json.loads(text))
    except (ValueError, RecursionError):
        return None


def json_html(text: str) -> SafeString:
    return code_html(formatted(text) or text, "json")
