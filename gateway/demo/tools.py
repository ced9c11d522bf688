"""When the demo calls a tool, which one, and with what arguments."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import orjson

from gateway.demo.chat_request import ChatRequest, Json
from gateway.demo.schema_example import example
from gateway.demo.subject import Subject

_DESCRIPTION_WORD = re.compile(r"[a-z]{4,}|[\u4e00-\u9fff]{2}")
# Words of so many descriptions that they say nothing about this tool.
_COMMON_WORDS = "this that with from given tool function call returns return gets when which used using value"
_COMMON = frozenset(_COMMON_WORDS.split())


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # JSON


def calls_for(request: ChatRequest, subject: Subject) -> list[ToolCall]:
    """The calls this request provokes; none after a tool's result or without a reason."""
    if not request.tools or request.tool_choice == "none" or request.last_role != "user":
        return []
    tool = _chosen(request, subject)
    if tool is None:
        return []
    arguments = orjson.dumps(example(tool.get("parameters") or {"type": "object"}, subject=subject)).decode()
    return [
        ToolCall(id=f"call_{uuid4().hex[:24]}", name=str(tool["name"]), arguments=arguments)
        for _ in range(request.wishes.calls)
    ]


def _chosen(request: ChatRequest, subject: Subject) -> Json | None:
    if isinstance(request.tool_choice, dict):
        wanted = request.tool_choice["function"]["name"]
        return next(tool for tool in request.tools if tool["name"] == wanted)
    mentioned = next((tool for tool in request.tools if _mentions(subject, tool)), None)
    if mentioned is None and request.tool_choice == "required":
        return request.tools[0]
    return mentioned


def _mentions(subject: Subject, tool: Json) -> bool:
    text = subject.text.lower()
    return any(word in text for word in _words_of(tool))


def _words_of(tool: Json) -> Iterator[str]:
    name = str(tool["name"]).lower()
    yield name
    yield name.replace("_", " ")
    for word in _DESCRIPTION_WORD.findall(str(tool.get("description") or "").lower()):
        if word not in _COMMON:
            yield word
