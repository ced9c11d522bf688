"""A chat completion's answer on its way through: what is renamed, stripped, held back and remembered.

Bytes that need nothing done go through untouched. `ChatStream` does no I/O.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from gateway.call import BYTES_PER_TOKEN, Call
from gateway.errors import CUT, CallError, UpstreamUnavailable
from gateway.lenient_json import mended
from gateway.sse import EventSplitter, data_event, event_data, is_one_event, replace_data

DONE = b"[DONE]"
DONE_EVENT = data_event(DONE)
DONE_END = DONE_EVENT.removeprefix(b"data:")
# An event of fewer bytes is no chunk of a model's text: it is looked at.
SHORTEST_CHUNK = 64
# Takes whole events at once; what it returns is to be awaited before there are more.
type Write = Callable[[bytes], Awaitable[None] | None]

FINISH_REASON = re.compile(rb'"finish_reason"\s*:\s*"(\w+)"')
HAS_USAGE = re.compile(rb'"usage"\s*:\s*\{')
HAS_DATA = re.compile(rb"^data:|[\r\n]data:")


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
        # Whether all that came so far was whole events.
        self._is_between = True
        self._renames_model = renames_model
        self._include_usage = include_usage

    def feed(self, data: bytes) -> bytes:
        """The bytes that go to the client now. `[DONE]` is held back: it is sent once the record is safe."""
        if self._is_between and is_one_event(data) and len(data) >= SHORTEST_CHUNK and self._needs_nothing(data):
            # As most reads of a stream that keeps its pace.
            self.call.output_chunks += 1
            return data
        events = self._splitter.feed(data)
        self._is_between = self._splitter.is_between
        together = b"".join(events)
        if events and self._are_chunks(together, events) and self._needs_nothing(together):
            self.call.output_chunks += len(events)
            return together
        return b"".join([self._pass(event) for event in events])

    def end(self) -> bytes:
        """The upstream has ended: a last event without its blank line still counts, half of one is not passed on."""
        rest = self._splitter.rest().strip()
        data = event_data(rest)
        if self.done or not (data == DONE or _parse(data)[0]):
            return b""
        return self._pass(rest + b"\n\n")

    @property
    def is_over(self) -> bool:
        return self.done or self.error is not None

    def failure(self) -> CallError | None:
        """How a stream that ended by itself failed, if it did."""
        if self.error is not None:
            message = self.error.get("message") if isinstance(self.error, dict) else self.error
            return UpstreamUnavailable(str(message or "The model server reported an error."), code="upstream_error")
        if not self.done and not self.call.finish_reason:
            return UpstreamUnavailable(CUT)
        return None

    def _are_chunks(self, together: bytes, events: list[bytes]) -> bool:
        """Whether each may be a chunk of a model's text."""
        if min(map(len, events)) < SHORTEST_CHUNK:
            return False
        return together.count(b"\n\ndata:") + together.startswith(b"data:") == len(events)

    def _needs_nothing(self, chunks: bytes) -> bool:
        """Whether there is nothing to do or to remember in chunks, as in most."""
        # `in` would first take what is looked for as a number, and raise and drop a TypeError: a quarter of a chunk.
        find = chunks.find
        return (
            not self._renames_model
            and find(b'"usage"') < 0
            and find(b'"reasoning_content"') < 0
            and find(b'"error"') < 0
            and find(DONE) < 0
            and chunks.count(b'"finish_reason"') <= chunks.count(b'"finish_reason":null')
        )

    def _pass(self, event: bytes) -> bytes:
        if match := FINISH_REASON.search(event):
            self.call.finish_reason = match[1].decode("ascii")[:32]
        if (
            self._renames_model
            or len(event) < SHORTEST_CHUNK
            or HAS_USAGE.search(event)
            or b'"reasoning_content"' in event
            or b'"error"' in event
            or event.endswith(DONE_END)
        ):
            return self._rewrite(event)
        if event.startswith(b"data:") or HAS_DATA.search(event):
            self.call.output_chunks += 1
        return event

    def _rewrite(self, event: bytes) -> bytes:
        data = event_data(event)
        if data == DONE:
            self.done = True
            return b""
        document, read = _parse(data)
        if document is None:
            return event
        if read is not data:
            event = replace_data(event, read)
        choices = document.get("choices")
        if document.get("error") is not None and not choices:
            self.error = document["error"]
            return b""
        self.call.upstream_id = self.call.upstream_id or _id_of(document)
        changed = self._rename(document, choices)
        usage = document.get("usage")
        if isinstance(usage, dict):
            # Counts are cumulative: the last ones stand, they are never summed.
            self.call.usage = usage
        if choices:
            self.call.output_chunks += 1
            # Usage beside text was asked for by the gateway alone.
            if isinstance(usage, dict):
                del document["usage"]
                changed = True
        elif isinstance(usage, dict) and not self._include_usage:
            return b""
        return replace_data(event, _dump(document) or read) if changed else event

    def _rename(self, document: dict[str, Any], choices: Any) -> bool:
        changed = False
        if self._renames_model and document.get("model") != self.call.model:
            document["model"] = self.call.model
            changed = True
        for choice in choices if isinstance(choices, list) else ():
            changed = rename_reasoning(choice, "delta") or changed
        return changed


class Passing:
    """A stream on its way to a client: what the transport reads into (`gateway.transport.Reader`)."""

    __slots__ = ("_call", "_write", "done", "stream")

    def __init__(self, call: Call, stream: ChatStream, write: Write) -> None:
        self.done = False
        self.stream = stream
        self._call = call
        self._write = write

    def feed(self, data: bytes) -> Awaitable[None] | None:
        call, stream = self._call, self.stream
        if call.first_byte_at is None:
            call.first_byte_at = time.time()
        out = stream.feed(data)
        self.done = stream.is_over
        return self.pass_on(out) if out else None

    def pass_on(self, out: bytes) -> Awaitable[None] | None:
        self._call.bytes_out += len(out)
        return self._write(out)


class Chunks:
    """The client's events as objects again."""

    def __init__(self) -> None:
        self._splitter = EventSplitter()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        texts = [event_data(event) for event in self._splitter.feed(data)]
        documents = [_parse(text)[0] for text in texts if text != DONE]
        return [document for document in documents if document is not None]


def rewrite_completion(call: Call, body: bytes) -> bytes:
    """A whole (not streamed) answer for the client; ValueError where it is none."""
    document, body = _parse(body)
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
            # Where usage says nothing, the answer's length stands for its tokens.
            call.output_chunks = 1 + len(body) // BYTES_PER_TOKEN
            call.finish_reason = str(choice.get("finish_reason") or "")[:32]
    return (changed and _dump(document)) or body


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


def _dump(document: dict[str, Any]) -> bytes | None:
    """None for what was nested too deeply to be written again: it goes through as it came."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return None


def _parse(data: bytes) -> tuple[dict[str, Any] | None, bytes]:
    """The object, and the bytes it was read from: mended where they were only almost JSON."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        if not (data := mended(data)):
            return None, data
        document = orjson.loads(data)
    return (document if isinstance(document, dict) else None), data
