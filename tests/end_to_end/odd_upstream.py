"""A model server that counts its tokens in every way there is, and remembers what it delivered.

The prompt is a JSON object that says what to do: `{"kind": …, "prompt": 120, "cached": 40, "completion": 9}`. Every
answer has the same id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream, Received, Wire

PAUSE_SECONDS = 0.02
# What becomes of each kind: usage that is exact, or none, so that the gateway has to estimate.
EXACT = ("plain", "null details", "cumulative", "more cached than prompt", "unknown fields", "dies counted")
ESTIMATED = ("no usage", "dies")


class Delivered(NamedTuple):
    """What one request is to be charged for."""

    kind: str
    prompt: int
    cached: int
    completion: int


class OddUpstream(FakeUpstream):
    def __init__(self, models: list[str]) -> None:
        super().__init__()
        self.models = [{"id": model, "object": "model"} for model in models]
        self.delivered: dict[str, Delivered] = {}

    async def _reply(self, request: Received, wire: Wire) -> None:
        if request.path.endswith("/models"):
            await super()._reply(request, wire)
            return
        body = request.json()
        asked = json.loads(body["messages"][-1]["content"])
        kind, prompt, completion = asked["kind"], asked["prompt"], asked["completion"]
        cached = asked["cached"]
        usage = _usage(kind, prompt, cached, completion)
        delivered = Delivered(kind, prompt, min(cached, prompt) if _details(usage) else 0, completion)
        # Known before the last byte goes: the gateway may have its record written before this side goes on.
        self.delivered[request.headers["x-request-id"].replace("-", "")] = delivered
        if body.get("stream"):
            await _stream(wire, kind, usage)
        else:
            await _whole(wire, request, kind, usage)


def _usage(kind: str, prompt: int, cached: int, completion: int) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    if kind == "null details":
        usage |= {"prompt_tokens_details": None, "completion_tokens_details": None}
    if kind == "unknown fields":
        usage |= {"cost": "free", "queue_time": 0.1, "completion_tokens_details": {"reasoning_tokens": None, "x": []}}
    return usage


def _details(usage: dict[str, Any]) -> bool:
    return usage["prompt_tokens_details"] is not None


async def _stream(wire: Wire, kind: str, usage: dict[str, Any]) -> None:
    await wire.send(replies.STREAM_HEAD)
    counted = kind in ("cumulative", "dies counted")
    for number in range(1, 5):
        # Counts grow from chunk to chunk; the last one is the whole.
        so_far = usage | {"completion_tokens": usage["completion_tokens"] * number // 4}
        said = replies.chunk("word ", usage=so_far) if counted else replies.chunk("word ")
        await wire.send(replies.chunked(replies.event(said)))
        await asyncio.sleep(PAUSE_SECONDS)
    if kind.startswith("dies"):
        await wire.close()
        return
    ending = [replies.event(replies.chunk(finish_reason="stop"))]
    if kind not in ("no usage", "cumulative"):
        ending.append(replies.event(replies.usage_chunk(usage)))
    await wire.send(*(replies.chunked(event) for event in [*ending, replies.DONE]), replies.LAST_CHUNK)


async def _whole(wire: Wire, request: Received, kind: str, usage: dict[str, Any]) -> None:
    await asyncio.sleep(PAUSE_SECONDS)
    if kind.startswith("dies"):
        await replies.raw(replies.head(content_length="500") + b'{"id": "chatcmpl-1", "choi', close=True)(request, wire)
        return
    document = replies.completion("four words of it")
    document["usage"] = None if kind == "no usage" else usage
    await replies.answer(document)(request, wire)


@contextmanager
def odd_upstream(models: list[str]) -> Iterator[OddUpstream]:
    upstream = OddUpstream(models)
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()
