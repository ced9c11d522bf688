"""What a fake upstream says: whole answers, streams, and the many ways to get both wrong."""

from __future__ import annotations

import json
from typing import Any

from tests.fake_upstream.server import Gate, Hangup, Received, Reply, Wire
from tests.secrecy import ANSWER_MARK

DONE = b"data: [DONE]\n\n"
MODEL = "DeepSeek-V4-Flash"
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


# -- documents -------------------------------------------------------------------------------------


def completion(content: str = "Hello", **fields: Any) -> dict[str, Any]:
    """A chat completion as vLLM writes it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": MODEL,
        "system_fingerprint": ANSWER_MARK,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": USAGE,
    } | fields


def chunk(content: str = "", *, finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    delta = {"content": content} if content else {}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": MODEL,
        "system_fingerprint": ANSWER_MARK,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    } | fields


def usage_chunk(usage: Any = USAGE, **fields: Any) -> dict[str, Any]:
    return chunk(choices=[], usage=usage, **fields)


def event(document: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps(document, ensure_ascii=False).encode()


def hello(*, usage: Any = USAGE) -> list[bytes]:
    """The events of a short answer up to its usage, without `[DONE]`."""
    said = [chunk("Hel"), chunk("lo"), chunk(finish_reason="stop")]
    return [event(document) for document in ([*said, usage_chunk(usage)] if usage is not None else said)]


# -- heads and bodies ------------------------------------------------------------------------------


def head(status: int = 200, *, content_type: str = "application/json", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"content-type: {content_type}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
STREAM_HEAD = head(content_type="text/event-stream", transfer_encoding="chunked")


# -- replies ---------------------------------------------------------------------------------------


def answer(body: Any, *, status: int = 200, content_type: str = "application/json", **headers: str) -> Reply:
    """A whole answer; bytes are sent as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return raw(head(status, content_type=content_type, content_length=str(len(data)), **headers) + data)


def raw(*pieces: bytes, close: bool = False, reset: bool = False) -> Reply:
    """Exactly these bytes, each piece a write of its own."""

    async def reply(request: Received, wire: Wire) -> None:
        await wire.send(*pieces)
        if reset:
            wire.reset()
        elif close:
            await wire.close()

    return reply


def stream(*events: bytes, done: bool = True) -> Reply:
    """A well-made stream, an HTTP chunk an event."""
    said = [*events, DONE] if done else list(events)
    return raw(STREAM_HEAD, *(chunked(data) for data in said), LAST_CHUNK)


def cut_stream(*events: bytes, then: bytes = b"") -> Reply:
    """These events, perhaps the beginning of one more, then the connection is closed in the middle of the body."""
    return raw(STREAM_HEAD, *(chunked(data) for data in (*events, then) if data), close=True)


def paused_stream(gate: Gate, before: list[bytes], after: list[bytes]) -> Reply:
    """Stops between `before` and `after` until the gate opens."""

    async def reply(request: Received, wire: Wire) -> None:
        await wire.send(STREAM_HEAD, *(chunked(data) for data in before))
        await gate.wait()
        await wire.send(*(chunked(data) for data in after), LAST_CHUNK)

    return reply


def silence_after(*pieces: bytes) -> Reply:
    """These bytes, then nothing until the other side hangs up, which is noted in `hangups`."""

    async def reply(request: Received, wire: Wire) -> None:
        await wire.send(*pieces)
        await wire.until_hangup()
        raise Hangup

    return reply


def hang_up_at_once() -> Reply:
    """Takes the request and closes without a byte, as a keep-alive connection that had just timed out."""
    return raw(close=True)
