"""`GET /v1/openapi.json`: OpenAPI 3.1 of what is there, made from the tables that route and check requests.

Which paths and methods exist comes from the routes, which fields a body takes and within which bounds from the
checks themselves; only what a check cannot say of itself is written here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from gateway import anthropic, fields, ocr_schema, schema, speech_schema, systemone_schema
from gateway.catalog import EFFORTS
from gateway.usage_parameters import NAMES as USAGE_PARAMETERS

type Json = dict[str, Any]

TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer", "minimum": 1}
OBJECT: Json = {"type": "object"}
LIST_OF_OBJECTS: Json = {"type": "array", "items": OBJECT}
MESSAGE: Json = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"type": "string", "enum": sorted(schema.ROLES)},
        "content": {"anyOf": [TEXT, {"type": "array", "items": OBJECT}, {"type": "null"}]},
    },
}
# What each check takes; of the checks that are made from bounds or choices, see `_made`.
TAKEN_BY: Mapping[Any, Json] = {
    schema._text: TEXT,
    schema._flag: {"type": "boolean"},
    schema._object: OBJECT,
    schema._positive: WHOLE,
    schema._anything: {},
    schema._messages: {"type": "array", "minItems": 1, "items": MESSAGE},
    schema._tools: LIST_OF_OBJECTS,
    schema._tool_choice: {"anyOf": [TEXT, OBJECT]},
    schema._response_format: {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "enum": sorted(schema.RESPONSE_FORMATS)}},
    },
    schema._stop: {"anyOf": [TEXT, {"type": "array", "items": TEXT, "maxItems": 4}]},
    fields.text: TEXT,
    fields.flag: {"type": "boolean"},
    fields.anything: {},
}
# What is judged behind the checks of single fields, or says more than they do.
TOLD: Mapping[tuple[str, str], Json] = {
    ("chat/completions", "reasoning_effort"): TEXT | {"examples": list(EFFORTS)},
    ("chat/completions", "chat_template_kwargs"): {"description": "Forwarded unchanged."},
    ("chat/completions", "thinking"): {"type": "null", "description": "Refused: use reasoning_effort."},
    ("messages", "model"): TEXT,
    ("messages", "messages"): LIST_OF_OBJECTS | {"minItems": 1},
    ("messages", "max_tokens"): WHOLE,
    ("messages", "system"): {"anyOf": [TEXT, LIST_OF_OBJECTS]},
    ("messages", "temperature"): {"type": "number", "minimum": 0, "maximum": 1},
    ("messages", "stream"): {"type": "boolean"},
    ("messages", "tools"): LIST_OF_OBJECTS,
    ("messages", "tool_choice"): OBJECT,
    ("messages", "output_config"): {"type": "object", "properties": {"effort": TEXT}},
    ("messages", "metadata"): OBJECT,
    ("messages", "thinking"): {"type": "object", "properties": {"type": {"const": "disabled"}}},
    ("ocr", "document"): {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string", "enum": ["document_url", "image_url"]}},
    },
    ("ocr", "pages"): {"anyOf": [{"type": "array", "items": {"type": "integer", "minimum": 0}}, TEXT]},
    ("audio/speech", "input"): TEXT | {"minLength": 1, "maxLength": speech_schema.MAX_CHARACTERS},
    ("audio/speech", "voice"): TEXT,
    ("systemone", "state"): {"anyOf": [TEXT, OBJECT, {"type": "array"}]},
    ("systemone", "images"): {"type": "array", "items": TEXT},
    ("systemone", "videos"): {"type": "array", "items": TEXT},
    ("systemone", "questions"): {
        "type": "object",
        "minProperties": 1,
        "maxProperties": systemone_schema.MAX_QUESTIONS,
        "additionalProperties": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"type": "string", "enum": list(systemone_schema.TYPES)}},
        },
    },
}
# Body fields and the required ones, by route.
BODIES: Mapping[str, tuple[Mapping[str, Any] | Iterable[str], tuple[str, ...]]] = {
    "chat/completions": (schema.FIELDS, ("model", "messages")),
    "messages": (sorted(anthropic.ACCEPTED), ("model", "messages", "max_tokens")),
    "messages/count_tokens": (sorted(anthropic.ACCEPTED), ("model", "messages")),
    "ocr": (ocr_schema.FIELDS, ("model", "document")),
    "audio/speech": (speech_schema.FIELDS, ("model", "input")),
    "systemone": (systemone_schema.FIELDS, ("model", "state", "questions")),
}
SUMMARIES: Mapping[str, str] = {
    "/v1/chat/completions": "A chat completion, whole or as a stream of events",
    "/v1/messages": "A message in Anthropic's shape, whole or as a stream of events",
    "/v1/messages/count_tokens": "An estimate of a message's input tokens",
    "/v1/ocr": "A document as Markdown, page by page",
    "/v1/audio/speech": "A text as audio",
    "/v1/systemone": "Answers to questions about a state, with probabilities",
    "/v1/models": "The models that the caller may use now",
    "/v1/models/{id}": "One model",
    "/v1/openapi.json": "This description",
    "/api/me": "Who the credential is",
    "/api/profile/model-usage": "What the team has used, in points and units",
    "/api/profile/api-token": "Another secret for the calling key, shown once",
    "/api/usage": "The usage report as JSON or CSV",
    "/spaces/{endpoint}/v1/{path}": "A team's own server, byte for byte",
}
ERROR: Json = {
    "type": "object",
    "description": "The gateway's own errors. A model server's own error keeps its status and its body.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": TEXT,
                "type": TEXT,
                "param": {"type": ["string", "null"]},
                # Text where it is ours; model servers put their status here.
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}
ANTHROPIC_ERROR: Json = {
    "type": "object",
    "required": ["type", "error", "request_id"],
    "properties": {
        "type": {"const": "error"},
        "error": {"type": "object", "required": ["type", "message"], "properties": {"type": TEXT, "message": TEXT}},
        "request_id": TEXT,
    },
}
ANSWER_TYPES: Mapping[str, tuple[str, ...]] = {
    "chat/completions": ("application/json", "text/event-stream"),
    "messages": ("application/json", "text/event-stream"),
    "audio/speech": ("audio/*",),
    "/api/usage": ("application/json", "text/csv"),
}


def document(models_routes: Mapping[str, Iterable[str]], site_routes: Mapping[str, Iterable[str]]) -> Json:
    """Of both tables: path → methods. Those of `models_routes` are below /v1, and below /api/v1 the same."""
    paths = {f"/v1/{path}": _item(path, methods) for path, methods in models_routes.items()}
    paths |= {path: _item(path, methods) for path, methods in site_routes.items()}
    paths["/spaces/{endpoint}/v1/{path}"] = _item("spaces", ("GET", "POST", "PUT", "PATCH", "DELETE"))
    for path, item in paths.items():
        for operation in item.values():
            if isinstance(operation, dict):
                operation["summary"] = SUMMARIES.get(path, path)
                operation["parameters"] = [_parameter(name, "path") for name in _placeholders(path)] + _query(path)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Token Factory", "version": "1"},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "schemas": {"Error": ERROR, "AnthropicError": ANTHROPIC_ERROR},
        },
    }


def _item(path: str, methods: Iterable[str]) -> Json:
    return {method.lower(): _operation(path) for method in methods}


def _operation(path: str) -> Json:
    error = "AnthropicError" if path.startswith("messages") else "Error"
    refused = {"application/json": {"schema": {"$ref": f"#/components/schemas/{error}"}}}
    kinds = ANSWER_TYPES.get(path, ("application/json",))
    operation: Json = {
        "responses": {
            "200": {"description": "The answer", "content": {kind: {} for kind in kinds}},
            "default": {"description": "Refused or failed", "content": refused},
        }
    }
    if path in BODIES:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body_schema(path)}}}
    elif path == "/api/profile/api-token":
        grace = {"type": "object", "properties": {"grace_seconds": {"type": "integer", "minimum": 0}}}
        operation["requestBody"] = {"content": {"application/json": {"schema": grace}}}
    return operation


def body_schema(path: str) -> Json:
    """Null counts as absent in every optional field, and what is not named is dropped."""
    table, required = BODIES[path]
    told = "messages" if path.startswith("messages") else path
    checks = table if isinstance(table, Mapping) else dict.fromkeys(table)
    properties = {name: TOLD[told, name] if (told, name) in TOLD else _taken(check) for name, check in checks.items()}
    return {"type": "object", "required": list(required), "properties": properties}


def _taken(check: Any) -> Json:
    found = TAKEN_BY.get(check)
    return _made(check) if found is None else found


def _made(check: Any) -> Json:
    """Of a check that was made from bounds or choices: these."""
    known = inspect.getclosurevars(check).nonlocals
    if "minimum" in known:
        return {"type": "number", "minimum": known["minimum"], "maximum": known["maximum"]}
    if "values" in known:
        return {"type": "string", "enum": list(known["values"])}
    raise LookupError(f"nothing says what {check.__qualname__} takes")


def _placeholders(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _query(path: str) -> list[Json]:
    if path == "/api/usage":
        return [_parameter(name, "query") for name in sorted(USAGE_PARAMETERS)]
    return [_parameter("include_recent", "query")] if path == "/api/profile/model-usage" else []


def _parameter(name: str, place: str) -> Json:
    return {"name": name, "in": place, "required": place == "path", "schema": TEXT}
