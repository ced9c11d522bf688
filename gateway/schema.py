"""The accepted request of `/v1/chat/completions`, checked and rebuilt field by field.

Order of checks: JSON, thinking parameters, schema, model, the model's features. Fields outside the
accepted set are dropped before validation, whatever their type, and named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.catalog import Model
from gateway.errors import InvalidRequest
from gateway.picture_size import picture_excess_bytes

type Json = dict[str, Any]
type Check = Callable[[Any, str], None]

ROLES = frozenset({"system", "user", "assistant", "tool", "developer"})
RESPONSE_FORMATS = frozenset({"text", "json_object", "json_schema"})
UNSUPPORTED_THINKING = (
    '"{name}" is not supported on /v1/chat/completions and was not applied. '
    'Use "reasoning_effort" (or "reasoning.effort") to control thinking.'
)
BOTH_EFFORTS = "Cannot specify both reasoning_effort and reasoning.effort. Use one or the other."


@dataclass(slots=True)
class ChatRequest:
    """What goes on to the backend (`body`, its `model` still the public id) and what does not (`dropped`).

    `adapted` says in short words what portable mode had changed before.
    """

    model: str
    body: Json
    stream: bool
    dropped: list[str]
    include_usage: bool = field(default=False, init=False)
    adapted: list[str] = field(default_factory=list, init=False)
    # As `picture_size.picture_excess_bytes`.
    picture_excess_bytes: int = field(default=0, init=False)


def parse_json_object(raw: bytes) -> Json:
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise InvalidRequest("Malformed JSON in request body") from None
    if not isinstance(document, dict):
        raise InvalidRequest("The request body must be a JSON object")
    return document


def to_json(body: Json) -> bytes:
    """A body for the backend; what JSON can hold but no sane request does is refused here."""
    try:
        return orjson.dumps(body)
    except TypeError:
        raise InvalidRequest("The request body is nested too deeply") from None


def parse_chat_request(document: Json, *, find_model: Callable[[str], Model | None]) -> ChatRequest:
    _refuse_thinking(document)
    name = document.get("model")
    model = find_model(name) if isinstance(name, str) else None
    request = _rebuild(document, extra=model.extra_parameters if model else ())
    if model is None or model.endpoint != "chat":
        raise InvalidRequest(f"Requested model {request.model} not supported", param="model")
    _check_features(request.body, model)
    return request


def _refuse_thinking(document: Json) -> None:
    name = None
    reasoning = document.get("reasoning")
    if document.get("thinking") is not None:
        name = "thinking"
    elif isinstance(reasoning, dict) and reasoning.get("enabled") is not None:
        name = "reasoning.enabled"
    if name:
        raise InvalidRequest(UNSUPPORTED_THINKING.format(name=name), code="unsupported_parameter", param=name)


def _rebuild(document: Json, *, extra: tuple[str, ...]) -> ChatRequest:
    for required in ("model", "messages"):
        if document.get(required) is None:
            raise InvalidRequest(f"{required} is required", param=required)
    body: Json = {}
    dropped = []
    for name, value in document.items():
        check = FIELDS.get(name)
        if check is None and name in extra:
            check = EXTRA_FIELDS.get(name, _anything)
        if check is None:
            dropped.append(name)
        elif value is not None:
            check(value, name)
            body[name] = value
    request = ChatRequest(body["model"], body, body.get("stream", False), dropped)
    _unify_effort(request)
    _read_stream_options(request)
    request.picture_excess_bytes = picture_excess_bytes(body["messages"])
    return request


def _unify_effort(request: ChatRequest) -> None:
    reasoning = request.body.pop("reasoning", None)
    if reasoning is None:
        return
    request.dropped += [f"reasoning.{name}" for name in reasoning if name not in ("effort", "enabled")]
    effort = reasoning.get("effort")
    if effort is None:
        return
    _text(effort, "reasoning.effort")
    if "reasoning_effort" in request.body:
        raise InvalidRequest(BOTH_EFFORTS, code="invalid_request", param="reasoning_effort")
    request.body["reasoning_effort"] = effort


def _read_stream_options(request: ChatRequest) -> None:
    options = request.body.pop("stream_options", None)
    if options is None:
        return
    request.dropped += [f"stream_options.{name}" for name in options if name != "include_usage"]
    include_usage = options.get("include_usage")
    if include_usage is not None:
        _flag(include_usage, "stream_options.include_usage")
        request.include_usage = request.stream and include_usage


def _check_features(body: Json, model: Model) -> None:
    if not model.sees_images and any(_has_image(message) for message in body["messages"]):
        raise InvalidRequest(f"Model {model.id} does not support image input.", param="messages")
    format = body.get("response_format", {}).get("type")
    if format == "json_schema" and not model.structured_outputs:
        raise InvalidRequest(f"Model {model.id} does not support JSON schema output mode", param="response_format")
    if format == "json_object" and not model.json_output:
        raise InvalidRequest(f"Model {model.id} does not support JSON output mode", param="response_format")


def _has_image(message: Json) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part.get("type") == "image_url" for part in content)


# -- one check a field ---------------------------------------------------------------------------


def _refuse(param: str, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{param} must be {expected}", param=param)


def _text(value: Any, param: str) -> None:
    if not isinstance(value, str):
        raise _refuse(param, "a string")


def _flag(value: Any, param: str) -> None:
    if not isinstance(value, bool):
        raise _refuse(param, "true or false")


def _object(value: Any, param: str) -> None:
    if not isinstance(value, dict):
        raise _refuse(param, "an object")


def _number(minimum: float, maximum: float) -> Check:
    def check(value: Any, param: str) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= maximum:
            raise _refuse(param, f"a number from {minimum:g} to {maximum:g}")

    return check


def _positive(value: Any, param: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refuse(param, "a whole number of at least 1")


def _tools(value: Any, param: str) -> None:
    if not isinstance(value, list):
        raise _refuse(param, "a list of tools")
    for index, tool in enumerate(value):
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise _refuse(f"{param}[{index}]", "an object with a type")


def _tool_choice(value: Any, param: str) -> None:
    if not isinstance(value, str | dict):
        raise _refuse(param, "a string or an object")


def _response_format(value: Any, param: str) -> None:
    _object(value, param)
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in RESPONSE_FORMATS:
        raise _refuse(f"{param}.type", "one of text, json_object, json_schema")


def _stop(value: Any, param: str) -> None:
    sequences = [value] if isinstance(value, str) else value
    if not isinstance(sequences, list) or len(sequences) > 4 or not all(isinstance(item, str) for item in sequences):
        raise _refuse(param, "a string or a list of at most 4 strings")


def _messages(value: Any, param: str) -> None:
    if not isinstance(value, list) or not value:
        raise _refuse(param, "a non-empty list")
    for index, message in enumerate(value):
        if not isinstance(message, dict):
            raise _refuse(f"{param}[{index}]", "an object")
        role = message.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise _refuse(f"{param}[{index}].role", "one of system, user, assistant, tool")
        if not isinstance(message.get("content"), str):
            _parts(message, role, f"{param}[{index}]")


def _parts(message: Json, role: str, param: str) -> None:
    """The content of a message where it is no text."""
    content = message.get("content")
    if content is None:
        if role == "assistant" and message.get("tool_calls"):
            return
        raise _refuse(f"{param}.content", "a string or a list of parts")
    if not isinstance(content, list):
        raise _refuse(f"{param}.content", "a string or a list of parts")
    for index, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise _refuse(f"{param}.content[{index}]", "an object with a type")


def _anything(value: Any, param: str) -> None:
    """Forwarded unchanged; the backend judges it."""


FIELDS: dict[str, Check] = {
    "model": _text,
    "messages": _messages,
    "stream": _flag,
    "stream_options": _object,
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "presence_penalty": _number(-2, 2),
    "frequency_penalty": _number(-2, 2),
    "max_tokens": _positive,
    "response_format": _response_format,
    "tools": _tools,
    "tool_choice": _tool_choice,
    "parallel_tool_calls": _flag,
    "reasoning_effort": _text,
    "reasoning": _object,
    "thinking": _anything,
    "chat_template_kwargs": _anything,
}
# What a card's `extra_parameters` may add; others are forwarded for the backend to judge.
EXTRA_FIELDS: dict[str, Check] = {"stop": _stop, "n": _positive, "user": _text}
