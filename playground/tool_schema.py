"""Tools as people have them at hand, as OpenAI's list of functions.

Taken are that list, one entry of it, a bare function (`name`, `parameters`), and Anthropic's
(`name`, `input_schema`), alone or in a list.
"""

from __future__ import annotations

import json
import re
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

type Json = dict[str, Any]

MAX_TOOLS = 64
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def parse_tools(text: str) -> list[Json]:
    """Raises ValidationError in words that say where."""
    document = parse_json(text, what=_("Tools"))
    entries = document if isinstance(document, list) else [document]
    if len(entries) > MAX_TOOLS:
        raise ValidationError(_("Tools: at most %d.") % MAX_TOOLS)
    tools = [_tool(entry, number) for number, entry in enumerate(entries, 1)]
    names = [tool["function"]["name"] for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(_("Tools: “%s” is there twice.") % name)
    return tools


def parse_schema(text: str) -> Json:
    """A JSON schema, bare or as `response_format` wraps it: `{"name", "schema", "strict"}`."""
    document = parse_json(text, what=_("JSON schema"))
    if isinstance(document, dict) and isinstance(document.get("json_schema"), dict):
        document = document["json_schema"]
    if not isinstance(document, dict):
        raise ValidationError(_("JSON schema: an object is needed."))
    if isinstance(document.get("schema"), dict):
        return {"name": str(document.get("name") or "answer"), **document}
    return {"name": "answer", "schema": document}


def parse_json(text: str, *, what: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        text = _("%(what)s: this is not JSON (line %(line)d, column %(column)d).")
        raise ValidationError(text % {"what": what, "line": error.lineno, "column": error.colno}) from None
    except RecursionError:
        raise ValidationError(_("%s: this is nested too deeply.") % what) from None


def _tool(entry: Any, number: int) -> Json:
    function = entry.get("function", entry) if isinstance(entry, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValidationError(_("Tool %d needs a name of up to 64 letters, digits, dashes and underscores.") % number)
    parameters = function.get("parameters", function.get("input_schema", {"type": "object", "properties": {}}))
    if not isinstance(parameters, dict):
        raise ValidationError(_("The parameters of “%s” must be a JSON schema, an object.") % name)
    described = {"description": function["description"]} if function.get("description") else {}
    strict = {"strict": function["strict"]} if "strict" in function else {}
    return {"type": "function", "function": {"name": name, **described, "parameters": parameters, **strict}}


def pretty(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=2)
