"""What a model is told of a conversation: the turns of one path as the messages of a request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from playground.models import Image, Turn

type Message = dict[str, Any]
# How a picture is written into the request: its bytes, or in code a file to read them from.
type ImageUrl = Callable[[Image], str]


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{b64encode(image.data).decode('ascii')}"


def messages_of(turns: Sequence[Turn], *, sees_images: bool = True, url_of: ImageUrl = data_url) -> list[Message]:
    """Texts, pictures, tool calls with their results; never earlier thinking.

    A question whose answer failed is joined to the next one, since several models want user and assistant to
    alternate. Tool calls that nobody answered are left out: models refuse a call without its result.
    """
    messages: list[Message] = []
    for turn, following in pairwise([*turns, None]):
        assert turn is not None
        for message in _messages_of_turn(turn, following, sees_images=sees_images, url_of=url_of):
            if messages and messages[-1]["role"] == message["role"] and _joinable(messages[-1], message):
                messages[-1] = message | {"content": _joined(messages[-1]["content"], message["content"])}
            else:
                messages.append(message)
    return messages


def _messages_of_turn(turn: Turn, following: Turn | None, *, sees_images: bool, url_of: ImageUrl) -> Iterator[Message]:
    if turn.role == Turn.Role.TOOL:
        for result in turn.tool_results:
            yield {"role": "tool", "tool_call_id": result["id"], "content": result["content"]}
        return
    # A draft that is not saved has none.
    images = list(turn.images.all()) if sees_images and turn.pk and turn.role == Turn.Role.USER else []
    calls = turn.tool_calls if following is not None and following.role == Turn.Role.TOOL else []
    if calls:
        yield {"role": "assistant", "content": turn.content or None, "tool_calls": [_call(call) for call in calls]}
    elif images:
        text = [{"type": "text", "text": turn.content}] if turn.content.strip() else []
        parts = [{"type": "image_url", "image_url": {"url": url_of(image)}} for image in images]
        yield {"role": "user", "content": text + parts}
    elif turn.content.strip():
        yield {"role": turn.role, "content": turn.content}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": call["arguments"] or "{}"},
    }


def _joinable(one: Message, other: Message) -> bool:
    return one["role"] != "tool" and "tool_calls" not in one and "tool_calls" not in other


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*_parts(one), *_parts(other)]


def _parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
