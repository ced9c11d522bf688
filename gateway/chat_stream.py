"""A chat completion's answer on its way through: what is renamed, stripped, held back and remembered.

Bytes that need nothing done go through untouched. `ChatStream` does no I/O.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from gateway.call import BYTES_PER_TOKEN, Call
from gateway.sse import EventSplitter, data_event, event_data

DONE = b"[DONE]"
DONE_EVENT = data_event(DONE)
FINISH_REASON = re.compile(rb'"finish_reason":\s*"(\w+)"')
HAS_USAGE = re.compile(rb'"usage":\s*\{')


class ChatStream:
    """Events of one backend stream turned into the client's.

    `public_model` replaces the backend's model name where it differs; usage chunks reach the client only with
    `include_usage`, and usage on chunks that carry text never does.
    """

    def __init__(self, call: Call, *, renames_model: bool, include_usage: bool) -> None:
        self.call = call
        self.done = False
        self.error: Any = None
        self._splitter = EventSplitter()
        self._renames_model = renames_model
        self._include_usage = include_usage
        self._usage_event: bytes = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes that go to the client now. `[DONE]` is held back: it is sent once the record is safe."""
        return b"".join([self._pass(event) for event in self._splitter.feed(data)])

    def end(self) -> bytes:
        """The upstream has ended: a last event without its blank line still counts."""
        rest = self._splitter.rest()
        return self._pass(rest + b"\n\n") if event_data(rest) else b""

    def read_usage(self) -> None:
        """Parse the last usage seen, and only that one: counts are cumulative, never summed."""
        if self._usage_event:
            document = _parse(event_data(self._usage_event))
            if document is not None:
                self.call.usage = document.get("usage")
                self.call.upstream_id = _id_of(document) or self.call.upstream_id
            self._usage_event = b""

    def _pass(self, event: bytes) -> bytes:
        has_usage = HAS_USAGE.search(event) is not None
        if has_usage:
            self._usage_event = event
        if b'"finish_reason":' in event and (match := FINISH_REASON.search(event)):
            self.call.finish_reason = match[1].decode("ascii")[:32]
        if (
            has_usage
            or self._renames_model
            or b'"reasoning_content"' in event
            or len(event) < 64
            or b'"error"' in event
        ):
            return self._rewrite(event)
        if event.startswith(b"data:"):
            self.call.output_chunks += 1
        return event

    def _rewrite(self, event: bytes) -> bytes:
        data = event_data(event)
        if data == DONE:
            self.done = True
            return b""
        document = _parse(data)
        if document is None:
            return event
        if "error" in document and not document.get("choices"):
            self.error = document["error"]
            return b""
        self.call.upstream_id = self.call.upstream_id or _id_of(document)
        changed = self._rename(document)
        if document.get("choices"):
            self.call.output_chunks += 1
            # Usage beside text was asked for by the gateway alone.
            if isinstance(document.get("usage"), dict):
                del document["usage"]
                changed = True
        elif isinstance(document.get("usage"), dict) and not self._include_usage:
            return b""
        return data_event(orjson.dumps(document)) if changed else event

    def _rename(self, document: dict[str, Any]) -> bool:
        changed = False
        if self._renames_model and document.get("model") != self.call.model:
            document["model"] = self.call.model
            changed = True
        for choice in document.get("choices") or ():
            changed = rename_reasoning(choice, "delta") or changed
        return changed


def rewrite_completion(call: Call, body: bytes) -> bytes:
    """A whole (not streamed) answer for the client; ValueError where it is none."""
    document = _parse(body)
    if document is None:
        raise ValueError("not a JSON object")
    call.usage = document.get("usage")
    call.upstream_id = _id_of(document)
    changed = document.get("model") != call.model
    document["model"] = call.model
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        changed = rename_reasoning(choice, "message") or changed
        if isinstance(choice, dict):
            call.output_chunks += 1
            call.finish_reason = str(choice.get("finish_reason") or "")[:32]
    if not isinstance(call.usage, dict):
        # No usage: the answer's length stands for its tokens.
        call.output_chunks += len(body) // BYTES_PER_TOKEN
    return orjson.dumps(document) if changed else body


def rename_reasoning(choice: Any, name: str) -> bool:
    """Thinking text is called `reasoning`, whatever a backend calls it."""
    message = choice.get(name) if isinstance(choice, dict) else None
    if not isinstance(message, dict) or "reasoning_content" not in message:
        return False
    text = message.pop("reasoning_content")
    if not message.get("reasoning"):
        message["reasoning"] = text
    return True


def _id_of(document: dict[str, Any]) -> str:
    value = document.get("id")
    return value if isinstance(value, str) else ""


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
