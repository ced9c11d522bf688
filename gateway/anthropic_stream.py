"""Chunks of a chat completion as the events of an Anthropic message, in Anthropic's order.

    stream = MessageStream(request_id=…, model=…)
    for chunk in chunks: send(stream.feed(chunk))
    send(stream.end())                      # or stream.error(error), after which nothing follows

No I/O. A block is closed before the next one opens; where a server mixes the pieces of several tool calls,
those of the later call wait until the earlier one is whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from gateway.anthropic_answer import error_document, message_id, stop_reason, usage_from
from gateway.errors import CallError

type Json = dict[str, Any]

PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def _event(name: str, document: Json) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode("ascii"), orjson.dumps({"type": name, **document}))


@dataclass(slots=True)
class _Call:
    id: str
    name: str
    arguments: str = ""
    sent: int = 0  # characters of the arguments that are out

    def is_whole(self) -> bool:
        try:
            orjson.loads(self.arguments)
        except orjson.JSONDecodeError:
            return False
        return True


class MessageStream:
    def __init__(self, *, request_id: str, model: str) -> None:
        self._request_id = request_id
        self._model = model
        self._out = bytearray()
        self._started = False
        self._block = -1  # index of the block opened last
        self._open = ""  # its type while it is open
        self._calls: list[_Call] = []
        self._by_index: dict[Any, _Call] = {}
        self._at = 0  # the call whose block is open or opens next
        self._late_text = ""
        self._usage: Any = None
        self._finish_reason: Any = None
        self._refused = False

    # -- what goes in --------------------------------------------------------------------------

    def feed(self, chunk: Json) -> bytes:
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        self._start()
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if isinstance(choice, dict):
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            if isinstance(delta := choice.get("delta"), dict):
                self._delta(delta)
        return self._taken()

    def end(self) -> bytes:
        self._start()
        self._finish_calls()
        self._flush_late_text()
        self._close()
        reason = stop_reason(self._finish_reason, calls=bool(self._calls), refused=self._refused)
        delta = {"stop_reason": reason, "stop_sequence": None}
        self._emit("message_delta", {"delta": delta, "usage": usage_from(self._usage)})
        self._emit("message_stop", {})
        return self._taken()

    def error(self, error: CallError) -> bytes:
        document = error_document(error, request_id=self._request_id)
        return _event("error", document)

    # -- one delta -----------------------------------------------------------------------------

    def _delta(self, delta: Json) -> None:
        thought = delta.get("reasoning") or delta.get("reasoning_content")
        if isinstance(thought, str) and thought:
            self._thinking(thought)
        for field in ("content", "refusal"):
            text = delta.get(field)
            if isinstance(text, str) and text:
                self._refused = self._refused or field == "refusal"
                self._text(text)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else []:
            if isinstance(call, dict):
                self._call(call)

    def _thinking(self, thought: str) -> None:
        if not self._calls_are_whole():
            return  # thinking inside a call's arguments: no server does that
        self._open_block("thinking", {"thinking": "", "signature": ""})
        self._block_delta({"type": "thinking_delta", "thinking": thought})

    def _text(self, text: str) -> None:
        if not self._calls_are_whole():
            self._late_text += text
            return
        self._open_block("text", {"text": ""})
        self._block_delta({"type": "text_delta", "text": text})

    def _call(self, delta: Json) -> None:
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        call = self._addressed(delta, function)
        if isinstance(function.get("name"), str):
            call.name = call.name or function["name"]
        if isinstance(function.get("arguments"), str):
            call.arguments += function["arguments"]
        self._advance()

    def _addressed(self, delta: Json, function: Json) -> _Call:
        """The call a piece belongs to. Indexes are odd at times: missing, or the same for every call."""
        index, call_id = delta.get("index"), delta.get("id")
        if not isinstance(index, int):
            index = None
        call = self._by_index.get(index) if index is not None or not call_id else None
        if call is None and index is None and not call_id and self._calls:
            call = self._calls[-1]
        if call is None or (call_id and call.id and call_id != call.id):
            call = _Call(id="", name="")
            self._calls.append(call)
            self._by_index[index] = call
        call.id = call.id or str(call_id or "")
        return call

    # -- tool calls, one block after the other -------------------------------------------------

    def _advance(self) -> None:
        """Send what may go out now: the call at turn, and the next ones once that is whole."""
        while self._at < len(self._calls):
            call = self._calls[self._at]
            if not call.name:
                return  # a block cannot open without one
            self._send_call(call)
            if self._at == len(self._calls) - 1 or not call.is_whole():
                return
            self._close()
            self._at += 1

    def _send_call(self, call: _Call) -> None:
        if self._open != "tool_use":
            call.id = call.id or f"toolu_{self._request_id.replace('-', '')}{self._at}"
            self._open_block("tool_use", {"id": call.id, "name": call.name, "input": {}})
        if piece := call.arguments[call.sent :]:
            call.sent = len(call.arguments)
            self._block_delta({"type": "input_json_delta", "partial_json": piece})

    def _finish_calls(self) -> None:
        while self._at < len(self._calls):
            self._send_call(self._calls[self._at])
            self._close()
            self._at += 1

    def _calls_are_whole(self) -> bool:
        """Whether another block may come now; the calls so far are finished if so."""
        waiting = self._calls[self._at :]
        if not all(call.name and call.is_whole() for call in waiting):
            return False
        self._finish_calls()
        return True

    def _flush_late_text(self) -> None:
        if self._late_text:
            text, self._late_text = self._late_text, ""
            self._open_block("text", {"text": ""})
            self._block_delta({"type": "text_delta", "text": text})

    # -- events --------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._started:
            return
        self._started = True
        message: Json = {
            "id": message_id(self._request_id),
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_from(self._usage),
        }
        self._emit("message_start", {"message": message})

    def _open_block(self, kind: str, fields: Json) -> None:
        if self._open == kind and kind != "tool_use":
            return
        self._close()
        self._block += 1
        self._open = kind
        self._emit("content_block_start", {"index": self._block, "content_block": {"type": kind, **fields}})

    def _block_delta(self, delta: Json) -> None:
        self._emit("content_block_delta", {"index": self._block, "delta": delta})

    def _close(self) -> None:
        if self._open:
            self._open = ""
            self._emit("content_block_stop", {"index": self._block})

    def _emit(self, name: str, document: Json) -> None:
        self._out += _event(name, document)

    def _taken(self) -> bytes:
        out = bytes(self._out)
        self._out.clear()
        return out
