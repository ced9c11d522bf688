"""The request of `/v1/messages` (Anthropic's shape), checked and rebuilt as a chat completion's document.

What comes out goes through `gateway.schema` like any chat request, so the model, its features and the
remaining rules are judged there. Fields outside the accepted set are dropped and named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from gateway.errors import InvalidRequest

type Json = dict[str, Any]

ACCEPTED = frozenset({
    "model", "messages", "max_tokens", "system", "temperature", "stream", "tools", "tool_choice", "output_config",
    "metadata", "thinking",
})  # fmt: skip
MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
UNSUPPORTED_THINKING = (
    '"thinking" is not supported on /v1/messages and was not applied. '
    'Use "output_config": {"effort": …} to control thinking.'
)
STRIPPED = frozenset({"thinking", "redacted_thinking"})
# What a tool may carry beside the fields that are translated.
TOOL_FIELDS = frozenset({"type", "name", "description", "input_schema", "strict"})


@dataclass(slots=True)
class MessagesRequest:
    """`chat` is the document for `parse_chat_request`; `dropped` what the client sent in vain."""

    chat: Json
    dropped: set[str] = field(default_factory=set)

    @property
    def stream(self) -> bool:
        return bool(self.chat.get("stream"))


def parse_messages_request(document: Json, *, counting: bool = False) -> MessagesRequest:
    """`counting`: for `count_tokens`, whose requests have no `max_tokens` and never stream."""
    _refuse_thinking(document.get("thinking"))
    for required in ("model", "messages") if counting else ("model", "messages", "max_tokens"):
        if document.get(required) is None:
            raise _fault(required, "Field required")
    request = MessagesRequest({"model": _text(document["model"], "model")})
    request.dropped.update(name for name in document if name not in ACCEPTED)
    request.chat["messages"] = [*_system(document.get("system"), request), *_messages(document["messages"], request)]
    _scalars(document, request)
    if tools := _tools(document.get("tools"), request):
        request.chat["tools"] = tools
    request.chat |= _tool_choice(document.get("tool_choice"))
    request.chat |= _effort(document.get("output_config"), request)
    if request.stream:
        request.chat["stream_options"] = {"include_usage": True}
    return request


def _refuse_thinking(thinking: Any) -> None:
    if thinking is None or (isinstance(thinking, dict) and thinking.get("type") == "disabled"):
        return
    raise InvalidRequest(UNSUPPORTED_THINKING, code="unsupported_parameter", param="thinking")


def _scalars(document: Json, request: MessagesRequest) -> None:
    chat = request.chat
    if (tokens := document.get("max_tokens")) is not None:
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            raise _fault("max_tokens", "Input should be a whole number of at least 1")
        chat["max_tokens"] = tokens
    if (heat := document.get("temperature")) is not None:
        if isinstance(heat, bool) or not isinstance(heat, int | float) or not 0 <= heat <= 1:
            raise _fault("temperature", "Input should be a number from 0 to 1")
        chat["temperature"] = heat
    if (stream := document.get("stream")) is not None:
        if not isinstance(stream, bool):
            raise _fault("stream", "Input should be true or false")
        chat["stream"] = stream
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise _fault("metadata", "Input should be an object")


def _effort(config: Any, request: MessagesRequest) -> Json:
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise _fault("output_config", "Input should be an object")
    request.dropped.update(f"output_config.{name}" for name in config if name != "effort")
    effort = config.get("effort")
    return {} if effort is None else {"reasoning_effort": _text(effort, "output_config.effort")}


# -- system and messages -------------------------------------------------------------------------


def _system(system: Any, request: MessagesRequest) -> list[Json]:
    if system is None:
        return []
    text = system if isinstance(system, str) else _joined(system, "system", request)
    return [{"role": "system", "content": text}] if text else []


def _joined(blocks: Any, where: str, request: MessagesRequest) -> str:
    """Text blocks as one text; paragraphs, as each was a text of its own."""
    texts = []
    for at, block in _blocks(blocks, where, request):
        if block["type"] != "text":
            raise _fault(at, "Only text blocks are supported here")
        texts.append(_text(block.get("text"), f"{at}.text"))
    return "\n\n".join(texts)


def _messages(messages: Any, request: MessagesRequest) -> Iterator[Json]:
    if not isinstance(messages, list) or not messages:
        raise _fault("messages", "Input should be a list of at least one message")
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        if not isinstance(message, dict):
            raise _fault(where, "Input should be an object")
        content = message.get("content")
        match message.get("role"):
            case "user" | "assistant" | "system" as role if isinstance(content, str):
                yield {"role": role, "content": content}
            case "system":
                # Where one may stand is the model's to say.
                yield {"role": "system", "content": _joined(content, f"{where}.content", request)}
            case "user":
                yield from _user(content, f"{where}.content", request)
            case "assistant":
                yield _assistant(content, f"{where}.content", request)
            case _:
                raise _fault(f"{where}.role", "Input should be 'user', 'assistant' or 'system'")


def _user(content: Any, where: str, request: MessagesRequest) -> Iterator[Json]:
    """Results of tools are messages of their own in a chat, and come before what the person says.

    A chat's tool message holds text only: pictures in a result follow in the person's message.
    """
    parts: list[Json] = []
    for at, block in _blocks(content, where, request):
        match block["type"]:
            case "text":
                parts.append({"type": "text", "text": _text(block.get("text"), f"{at}.text")})
            case "image":
                parts.append(_image(block, at))
            case "tool_result":
                text, images = _tool_result(block, at, request)
                call_id = _text(block.get("tool_use_id"), f"{at}.tool_use_id")
                yield {"role": "tool", "tool_call_id": call_id, "content": text}
                parts += images
            case other:
                raise _fault(f"{at}.type", f"Blocks of type {other!r} are not supported")
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": "user", "content": parts[0]["text"]}
    elif parts:
        yield {"role": "user", "content": parts}


def _tool_result(block: Json, where: str, request: MessagesRequest) -> tuple[str, list[Json]]:
    content = block.get("content")
    images: list[Json] = []
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        texts = []
        for at, part in _blocks(content, f"{where}.content", request):
            if part["type"] == "text":
                texts.append(_text(part.get("text"), f"{at}.text"))
            elif part["type"] == "image":
                images.append(_image(part, at))
            else:
                raise _fault(f"{at}.type", f"Blocks of type {part['type']!r} are not supported in a tool's result")
        text = "\n\n".join(texts)
    # A chat has no flag for a failed call; the model has to read it.
    return (f"Error: {text}" if block.get("is_error") is True else text), images


def _image(block: Json, where: str) -> Json:
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") != "base64":
        raise _fault(f"{where}.source.type", "Only base64 images are supported")
    media_type = source.get("media_type")
    if not isinstance(media_type, str) or media_type not in MEDIA_TYPES:
        raise _fault(f"{where}.source.media_type", f"Input should be one of {', '.join(sorted(MEDIA_TYPES))}")
    data = _text(source.get("data"), f"{where}.source.data")
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}


def _assistant(content: Any, where: str, request: MessagesRequest) -> Json:
    texts: list[str] = []
    calls: list[Json] = []
    for at, block in _blocks(content, where, request):
        match block["type"]:
            case "text":
                texts.append(_text(block.get("text"), f"{at}.text"))
            case "tool_use":
                calls.append(_call(block, at))
            case other if other not in STRIPPED:
                raise _fault(f"{at}.type", f"Blocks of type {other!r} are not supported")
    message: Json = {"role": "assistant", "content": "".join(texts)}
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    return message


def _call(block: Json, where: str) -> Json:
    given = block.get("input")
    if not isinstance(given, dict):
        raise _fault(f"{where}.input", "Input should be an object")
    try:
        arguments = orjson.dumps(given).decode()
    except TypeError:
        raise _fault(f"{where}.input", "Input is nested too deeply") from None
    function = {"name": _text(block.get("name"), f"{where}.name"), "arguments": arguments}
    return {"id": _text(block.get("id"), f"{where}.id"), "type": "function", "function": function}


def _blocks(content: Any, where: str, request: MessagesRequest) -> Iterator[tuple[str, Json]]:
    """Each block with where it stands."""
    if not isinstance(content, list):
        raise _fault(where, "Input should be a string or a list of blocks")
    for index, block in enumerate(content):
        at = f"{where}.{index}"
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise _fault(at, "Input should be an object with a type")
        if "cache_control" in block:
            # Prefixes are cached by the model servers themselves; there is nothing to control.
            request.dropped.add("cache_control")
        yield at, block


# -- tools ---------------------------------------------------------------------------------------


def _tools(tools: Any, request: MessagesRequest) -> list[Json]:
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise _fault("tools", "Input should be a list")
    return [_tool(tool, f"tools.{index}", request) for index, tool in enumerate(tools)]


def _tool(tool: Any, where: str, request: MessagesRequest) -> Json:
    if not isinstance(tool, dict):
        raise _fault(where, "Input should be an object")
    if tool.get("type") not in (None, "custom"):
        raise _fault(f"{where}.type", "Only tools of type 'custom' are supported")
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise _fault(f"{where}.input_schema", "Input should be an object")
    request.dropped.update("cache_control" if name == "cache_control" else f"tools.{name}"
                           for name in tool if name not in TOOL_FIELDS)  # fmt: skip
    function: Json = {"name": _text(tool.get("name"), f"{where}.name"), "parameters": schema}
    if tool.get("description") is not None:
        function["description"] = _text(tool["description"], f"{where}.description")
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"]
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> Json:
    if choice is None:
        return {}
    if not isinstance(choice, dict):
        raise _fault("tool_choice", "Input should be an object")
    chat: Json = {}
    match choice.get("type"):
        case "auto" | "none" as kind:
            chat["tool_choice"] = kind
        case "any":
            chat["tool_choice"] = "required"
        case "tool":
            name = _text(choice.get("name"), "tool_choice.name")
            chat["tool_choice"] = {"type": "function", "function": {"name": name}}
        case _:
            raise _fault("tool_choice.type", "Input should be 'auto', 'any', 'tool' or 'none'")
    if isinstance(choice.get("disable_parallel_tool_use"), bool):
        chat["parallel_tool_calls"] = not choice["disable_parallel_tool_use"]
    return chat


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _fault(where, "Field required" if value is None else "Input should be a string")
    return value


def _fault(where: str, text: str) -> InvalidRequest:
    return InvalidRequest(f"{where}: {text}", param=where)
