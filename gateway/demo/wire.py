"""Completions and chunks as JSON: which model names its fields how, and the bytes of them."""

import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import orjson

from gateway.catalog import Model
from gateway.demo.generation import Choice, Kind, Piece

# Servers that still call the thinking text by its older name. Which models do is the
# demo's choice (nobody published it), so that the gateway's renaming is exercised.
_OLDER_NAME = frozenset({"GLM-5.3-Flash", "Gemma-4-31B-IT"})

DONE = b"data: [DONE]\n\n"


def thinking_field(model: Model) -> str:
    return "reasoning_content" if model.id in _OLDER_NAME else "reasoning"


def completion_id() -> str:
    return f"chatcmpl-{uuid4().hex}"


def completion(model: Model, choices: list[Choice], usage: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": completion_id(),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model.id,
        "choices": [
            {
                "index": choice.index,
                "message": _message(model, choice),
                "logprobs": None,
                "finish_reason": choice.finish_reason,
            }
            for choice in choices
        ],
        "usage": usage,
    }


def _message(model: Model, choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.text(Kind.CONTENT)}
    if thought := choice.text(Kind.THINKING):
        message[thinking_field(model)] = thought
    if calls := _calls(choice):
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    return message


def _calls(choice: Choice) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for piece in choice.pieces:
        if piece.kind is Kind.CALL_START:
            function = {"name": piece.text, "arguments": ""}
            calls.append({"id": piece.call_id, "type": "function", "function": function})
        elif piece.kind is Kind.CALL_ARGUMENTS:
            calls[-1]["function"]["arguments"] += piece.text
    return calls


class Chunks:
    """Writes the events of one stream. `usage` is asked on every chunk where the client wants it so."""

    def __init__(self, model: Model, *, usage: Callable[[], dict[str, Any]] | None) -> None:
        head = {
            "id": completion_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model.id,
        }
        # The same in every event of the stream, so it is written once.
        self._head = b"data: " + orjson.dumps(head)[:-1]
        self._thinking = thinking_field(model)
        self._usage = usage

    def opening(self, index: int) -> bytes:
        return self._chunk(index, {"role": "assistant", "content": ""})

    def piece(self, index: int, piece: Piece) -> bytes:
        return self._chunk(index, self._delta(piece))

    def closing(self, choice: Choice) -> bytes:
        return self._chunk(choice.index, {}, reason=choice.finish_reason)

    def usage_chunk(self, usage: dict[str, Any]) -> bytes:
        return self._head + b',"choices":[],"usage":' + orjson.dumps(usage) + b"}\n\n"

    def _delta(self, piece: Piece) -> dict[str, Any]:
        match piece.kind:
            case Kind.CONTENT:
                return {"content": piece.text}
            case Kind.THINKING:
                return {self._thinking: piece.text}
            case Kind.CALL_START:
                function = {"name": piece.text, "arguments": ""}
                call = {"index": piece.call, "id": piece.call_id, "type": "function", "function": function}
                return {"tool_calls": [call]}
            case Kind.CALL_ARGUMENTS:
                return {"tool_calls": [{"index": piece.call, "function": {"arguments": piece.text}}]}

    def _chunk(self, index: int, delta: dict[str, Any], *, reason: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        usage = b"" if self._usage is None else b',"usage":' + orjson.dumps(self._usage())
        return self._head + b',"choices":[' + orjson.dumps(choice) + b"]" + usage + b"}\n\n"
