"""A model server that counts what it delivers in every way there is, and remembers what that was.

A chat's prompt is a JSON object that says what to do: `{"kind": …, "prompt": 120, "cached": 40, "completion": 9}`; what
becomes of other requests is left to chance. Every answer has the same id.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream, Received, Wire

PAUSE_SECONDS = 0.02
# What becomes of each kind: usage that is exact, or none, so that the gateway has to estimate.
EXACT_CHATS = ("plain", "null details", "cumulative", "more cached than prompt", "unknown fields", "dies counted")
ESTIMATED_CHATS = ("no usage", "dies")
CHAT_KINDS = EXACT_CHATS + ESTIMATED_CHATS
EXACT = (*EXACT_CHATS, "pages", "sound", "cut sound", "decision")
ESTIMATED = (*ESTIMATED_CHATS, "uncounted pages", "uncounted decision")


class Delivered(NamedTuple):
    """What one request is to be charged for."""

    kind: str
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    pages: int = 0
    characters: int = 0


class OddUpstream(FakeUpstream):
    def __init__(self, models: list[str], *, seed: int = 0) -> None:
        super().__init__()
        self._chance = random.Random(seed)
        self.models = [{"id": model, "object": "model"} for model in models]
        self.delivered: dict[str, Delivered] = {}

    async def _reply(self, request: Received, wire: Wire) -> None:
        if request.path.endswith("/models"):
            await super()._reply(request, wire)
            return
        answer = {
            "chat/completions": self._chat,
            "ocr": self._read_pages,
            "audio/speech": self._speak,
            "systemone": self._decide,
        }[request.path.partition("/v1/")[2]]
        await answer(request, request.json(), wire)

    def _deliver(self, request: Received, delivered: Delivered) -> None:
        """Known before the last byte goes: the gateway may have its record written before this side goes on."""
        self.delivered[request.headers["x-request-id"].replace("-", "")] = delivered

    async def _chat(self, request: Received, body: Any, wire: Wire) -> None:
        asked = json.loads(body["messages"][-1]["content"])
        kind, prompt, completion = asked["kind"], asked["prompt"], asked["completion"]
        cached = asked["cached"]
        usage = _usage(kind, prompt, cached, completion)
        self._deliver(request, Delivered(kind, prompt, min(cached, prompt) if _details(usage) else 0, completion))
        if body.get("stream"):
            await _stream(wire, kind, usage)
        else:
            await _whole(wire, request, kind, usage)

    async def _read_pages(self, request: Received, body: Any, wire: Wire) -> None:
        count, is_counted = self._chance.randint(1, 9), self._chance.random() < 0.8
        self._deliver(request, Delivered("pages" if is_counted else "uncounted pages", pages=count))
        pages = [{"index": number, "markdown": "word"} for number in range(count)]
        usage = {"pages_processed": count, "doc_size_bytes": None} if is_counted else None
        await asyncio.sleep(PAUSE_SECONDS)
        await replies.answer({"pages": pages, "model": body["model"], "usage_info": usage})(request, wire)

    async def _speak(self, request: Received, body: Any, wire: Wire) -> None:
        is_cut = self._chance.random() < 0.2
        self._deliver(request, Delivered("cut sound" if is_cut else "sound", characters=len(body["input"])))
        await wire.send(replies.head(content_type="audio/wav", transfer_encoding="chunked"))
        for _ in range(4):
            await wire.send(replies.chunked(b"\x01\x02" * 400))
            await asyncio.sleep(PAUSE_SECONDS)
        if is_cut:
            await wire.close()
        else:
            await wire.send(replies.LAST_CHUNK)

    async def _decide(self, request: Received, body: Any, wire: Wire) -> None:
        tokens, is_counted = self._chance.randint(1, 4_000), self._chance.random() < 0.8
        self._deliver(request, Delivered("decision" if is_counted else "uncounted decision", prompt=tokens))
        answers = {name: {"probability": 0.5} for name in body["questions"]}
        usage = {"input_tokens": tokens} if is_counted else None
        await asyncio.sleep(PAUSE_SECONDS)
        await replies.answer({"answers": answers, "model": body["model"], "usage": usage})(request, wire)


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
    if kind == "hangs":
        await wire.until_hangup()
        return
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
def odd_upstream(models: list[str], *, seed: int = 0) -> Iterator[OddUpstream]:
    upstream = OddUpstream(models, seed=seed)
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()
