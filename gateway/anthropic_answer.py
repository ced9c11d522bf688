"""A chat completion as an Anthropic message, and failures in Anthropic's envelope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from gateway.errors import CallError
from gateway.usage import read_usage

type Json = dict[str, Any]

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# The models whose text is cut into tokens like most of ours: bytes of UTF-8 for a token, on average.
BYTES_PER_TOKEN = 4
# A picture or a document as base64 says nothing of its tokens; what a middling picture takes.
TOKENS_PER_IMAGE = 200


def message_id(request_id: str) -> str:
    return f"msg_{request_id.replace('-', '')}"


def message_from(completion: Json, *, request_id: str, model: str) -> Json:
    """Raises ValueError for what is no chat completion."""
    choices = completion.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ValueError("the completion has no message")
    content = [*_thinking(message), *_texts(message), *_tool_uses(message)]
    calls = any(block["type"] == "tool_use" for block in content)
    return {
        "id": message_id(request_id),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason(choice.get("finish_reason"), calls=calls, refused=bool(message.get("refusal"))),
        "stop_sequence": None,
        "usage": usage_from(completion.get("usage")),
    }


def stop_reason(finish_reason: Any, *, calls: bool, refused: bool = False) -> str:
    if refused:
        return "refusal"
    reason = STOP_REASONS.get(finish_reason, "end_turn") if isinstance(finish_reason, str) else "end_turn"
    # Servers that were told which tool to call end with a plain stop.
    return "tool_use" if calls and reason == "end_turn" else reason


def usage_from(usage: Any) -> Json:
    counts = read_usage(usage)
    return {
        "input_tokens": counts.prompt - counts.cached,
        "output_tokens": counts.completion,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached,
    }


def _thinking(message: Json) -> Iterator[Json]:
    thought = message.get("reasoning") or message.get("reasoning_content")
    if isinstance(thought, str) and thought:
        yield {"type": "thinking", "thinking": thought, "signature": ""}


def _texts(message: Json) -> Iterator[Json]:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}, {"text": message.get("refusal")}]
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if isinstance(text, str) and text:
            yield {"type": "text", "text": text}


def _tool_uses(message: Json) -> Iterator[Json]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = tool_input(str(function.get("arguments") or ""))
            yield {"type": "tool_use", "id": str(call.get("id")), "name": str(function.get("name")), "input": arguments}


def tool_input(arguments: str) -> Json:
    """A call's arguments as the object that Anthropic's shape wants; text that is none is kept in one."""
    try:
        document = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return {"arguments": arguments}
    return document if isinstance(document, dict) else {"arguments": document}


# -- errors --------------------------------------------------------------------------------------


def error_document(error: CallError, *, request_id: str) -> Json:
    kind = ERROR_TYPES.get(error.status) or ("api_error" if error.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": request_id}


def error_body(error: CallError, *, request_id: str) -> bytes:
    """A backend's refusal is translated as well: its status and words stay, the envelope is Anthropic's."""
    return orjson.dumps(error_document(error, request_id=request_id))


# -- count_tokens --------------------------------------------------------------------------------


def estimated_input_tokens(chat: Json) -> int:
    """A guess at what the request would be counted as; no tokenizer of the model's is at hand here."""
    return max(1, _estimate(chat.get("messages")) + _estimate(chat.get("tools")))


def _estimate(value: Any) -> int:
    # Iterative: a request may be nested as deeply as JSON allows.
    stack, size, images = [value], 0, 0
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            size += len(item.encode("utf-8", "replace"))
        elif isinstance(item, dict):
            if item.get("type") == "image_url":
                images += 1
                continue
            stack.extend(item.values())
            size += sum(len(key) for key in item)
        elif isinstance(item, list):
            stack.extend(item)
        elif item is not None:
            size += BYTES_PER_TOKEN
    return -(-size // BYTES_PER_TOKEN) + images * TOKENS_PER_IMAGE
