"""The body of `POST /v1/chat/completions` as the demo reads it.

Lenient on purpose: what a backend would ignore is ignored, and only what would make it
stumble is refused here. Per-model judgement is in `rules`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.catalog import Catalog, Model
from gateway.demo import hooks
from gateway.demo.refusal import BadRequest, NoSuchModel, UnreadableBody

type Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    model: Model
    messages: tuple[Json, ...]
    prompt: str  # text of the last user message, hooks taken out
    wishes: hooks.Hooks
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    effort: str | None = None
    enable_thinking: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    choices: int = 1
    tools: tuple[Json, ...] = ()  # the `function` objects
    tool_choice: str | Json = "auto"
    response_format: Json | None = None

    @property
    def last_role(self) -> str:
        return str(self.messages[-1]["role"])

    @property
    def system_texts(self) -> list[str]:
        return [text_of(m) for m in self.messages if m["role"] in ("system", "developer")]

    @property
    def user_texts(self) -> list[str]:
        return [hooks.without(text_of(m)) for m in self.messages if m["role"] == "user"]


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text, its text parts joined; images and other parts left out."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return " ".join(str(part.get("text", "")) for part in parts_of(message) if part.get("type") == "text")


def parts_of(message: Mapping[str, Any]) -> list[Json]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def images_in(message: Mapping[str, Any]) -> list[str]:
    """The URLs of a message's image parts."""
    urls = []
    for part in parts_of(message):
        if part.get("type") == "image_url":
            image = part.get("image_url")
            urls.append(str(image.get("url", "")) if isinstance(image, dict) else str(image))
    return urls


def body_of(raw: bytes) -> Json:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"Malformed JSON: {error}") from None
    if not isinstance(body, dict):
        raise UnreadableBody("expected an object")
    return body


def read(body: Json, *, catalog: Catalog) -> ChatRequest:
    """Raises `Refusal` for a body this backend could not work with."""
    model = catalog.get(str(body.get("model")))
    if model is None or not model.is_chat:
        raise NoSuchModel(body.get("model"))
    messages = _messages(body)
    spoken = [text_of(message) for message in messages if message["role"] == "user"]
    last = spoken[-1] if spoken else ""
    options = _table(body, "stream_options")
    template = _table(body, "chat_template_kwargs")
    return ChatRequest(
        model=model,
        messages=messages,
        prompt=hooks.without(last),
        wishes=hooks.read(last),
        stream=body.get("stream") is True,
        include_usage=options.get("include_usage") is True,
        continuous_usage=options.get("continuous_usage_stats") is True,
        effort=body.get("reasoning_effort"),
        enable_thinking=template.get("enable_thinking"),
        max_tokens=_positive(body, "max_completion_tokens") or _positive(body, "max_tokens"),
        temperature=body.get("temperature"),
        stop=_stop(body.get("stop")),
        choices=_positive(body, "n") or 1,
        tools=tuple(_functions(body.get("tools"))),
        tool_choice=body.get("tool_choice") or "auto",
        response_format=body.get("response_format"),
    )


def _messages(body: Json) -> tuple[Json, ...]:
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise UnreadableBody("missing field `messages`")
    if not messages:
        raise BadRequest("messages must not be empty", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise UnreadableBody(f"messages[{index}]: missing field `role`")
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
            raise UnreadableBody(f"messages[{index}]: malformed tool_calls")
    return tuple(messages)


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("function"), dict)


def _table(body: Json, name: str) -> Json:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableBody(f"{name}: expected a map")
    return value


def _positive(body: Json, name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 1:
        raise BadRequest(f"{name} must be at least 1, got {value}.", param=name)
    return value


def _stop(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(item, str) and item for item in listed):
        raise BadRequest("stop must be a string or a list of strings.", param="stop")
    return tuple(listed)


def _functions(tools: object) -> list[Json]:
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise UnreadableBody("tools: expected a sequence")
    functions = []
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise UnreadableBody(f"tools[{index}]: missing field `function`")
        functions.append(function)
    return functions
