"""Requests to every billable endpoint, made at random by clients of whom some leave, and what they saw."""

from __future__ import annotations

import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.documents import data_url, png
from tests.end_to_end.odd_upstream import CHAT_KINDS

LEAVING = 0.1
PICTURE = data_url(png(4, 4), "image/png")
PAGES, SPEECH, DECISION = "MinerU2.5-Pro", "OmniVoice", "d3"
# What each endpoint's answer ends with where it is a stream of events.
LAST_LINES = {"chat/completions": "data: [DONE]", "messages": "event: message_stop"}


@dataclass(frozen=True, slots=True)
class Wish:
    """One request. `leaves_after`: pieces of the answer after which the client closes its connection."""

    path: str
    body: dict[str, Any]
    leaves_after: int | None = None

    @property
    def is_stream(self) -> bool:
        return bool(self.body.get("stream"))


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw, and when by the monotonic clock. `ended`: the whole answer, or the end of the stream;
    status 0 is no answer."""

    path: str
    request_id: str
    ended: bool
    status: int
    began_at: float
    ended_at: float


def wish(chance: random.Random, chat_models: list[str]) -> Wish:
    """Half of them chats, the rest spread over the other endpoints."""
    path = chance.choices(["chat/completions", "messages", "ocr", "audio/speech", "systemone"], [50, 20, 10, 10, 10])[0]
    leaves = chance.random() < LEAVING
    leaves_after = chance.randint(1, 4) if leaves else None
    match path:
        case "ocr":
            document = {"type": "image_url", "image_url": PICTURE}
            return Wish(path, {"model": PAGES, "document": document})
        case "audio/speech":
            return Wish(path, {"model": SPEECH, "input": "a世👍\u0301" * chance.randint(1, 300)}, leaves_after)
        case "systemone":
            question = {"type": "noul", "instructions": "word " * chance.randint(1, 40)}
            return Wish(path, {"model": DECISION, "state": "x", "questions": {"q": question}})
    body = {
        "model": chance.choice(chat_models),
        "messages": [{"role": "user", "content": _prompt(chance)}],
        "stream": leaves or chance.random() < 0.6,
        "max_tokens": 2_000,
    }
    return Wish(path, body, leaves_after)


def _prompt(chance: random.Random) -> str:
    """What the upstream is to answer, and how it is to count."""
    kind = chance.choice(CHAT_KINDS)
    prompt = chance.randint(1, 4_000)
    cached = prompt + 50 if kind == "more cached than prompt" else chance.randint(0, prompt)
    return json.dumps({"kind": kind, "prompt": prompt, "cached": cached, "completion": chance.randint(4, 2_000)})


async def perform(client: httpx.AsyncClient, wished: Wish, *, url: str) -> Seen:
    request_id, ended, status, began_at = "", False, 0, time.monotonic()
    try:
        async with client.stream("POST", f"{url}/v1/{wished.path}", json=wished.body) as response:
            status = response.status_code
            request_id = response.headers.get("x-request-id", "").replace("-", "")
            ended = await _read(response, wished) and status == 200
    except httpx.HTTPError:
        ended = False
    return Seen(wished.path, request_id, ended, status, began_at, time.monotonic())


async def _read(response: httpx.Response, wished: Wish) -> bool:
    """To the end, or until the client leaves; whether it was the end."""
    last = LAST_LINES[wished.path] if wished.is_stream else None
    count = 0
    async for piece in _pieces(response, wished):
        if piece == last:
            return True
        count += not wished.is_stream or piece.startswith("data: ")
        if wished.leaves_after is not None and count >= wished.leaves_after:
            return False
    return last is None


async def _pieces(response: httpx.Response, wished: Wish) -> AsyncIterator[str]:
    if wished.is_stream:
        async for line in response.aiter_lines():
            yield line
    else:
        async for _ in response.aiter_raw():
            yield ""
