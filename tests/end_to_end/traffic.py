"""Mixed traffic against a web process: whole answers, streams, and clients that leave."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass

import httpx

from tests.secrecy import PROMPT_MARK

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One request to be made. `leaves_after`: chunks after which the client closes its connection."""

    model: str
    prompt: str
    stream: bool
    leaves_after: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw. `ended`: the whole answer, or the stream's `[DONE]`."""

    plan: Plan
    request_id: str
    ended: bool
    status: int = 0


def mixed_plans(models: Iterable[str], *, count: int, leaving: int, seed: int = 20261129) -> list[Plan]:
    """`count` plans over all models, half of them streams; `leaving` of the streams are left part of the way."""
    chance = random.Random(seed)
    models = list(models)
    plans = []
    for number in range(count):
        tokens = chance.randint(5, 60)
        # Every third prompt begins alike, so that prefixes are found in the cache.
        opening = "Tell the harbour story again, from the lighthouse on, slowly. " * 3 if number % 3 == 0 else ""
        leaves = number < leaving
        pace = " [[pace=0.01]]" if leaves else ""
        prompt = f"{opening}Request {number} {PROMPT_MARK} [[tokens={tokens}]]{pace}"
        stream = leaves or number % 2 == 0
        plans.append(Plan(models[number % len(models)], prompt, stream, chance.randint(1, 4) if leaves else None))
    chance.shuffle(plans)
    return plans


async def run(plans: list[Plan], *, url: str, secret: str, at_once: int) -> list[Seen]:
    """Make all requests; those that failed to connect or were cut are there with `ended=False`."""
    gate = asyncio.Semaphore(at_once)
    headers = {"Authorization": f"Bearer {secret}"}
    limits = httpx.Limits(max_connections=at_once, max_keepalive_connections=at_once)
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE_SECONDS, limits=limits) as client:

        async def one(plan: Plan) -> Seen:
            async with gate:
                return await perform(client, plan)

        return await asyncio.gather(*(one(plan) for plan in plans))


async def perform(client: httpx.AsyncClient, plan: Plan, *, url: str = "") -> Seen:
    body = {"model": plan.model, "messages": [{"role": "user", "content": plan.prompt}], "stream": plan.stream}
    request_id, ended, status = "", False, 0
    try:
        async with client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            status = response.status_code
            request_id = response.headers.get("x-request-id", "").replace("-", "")
            if not plan.stream:
                await response.aread()
                ended = response.status_code == 200
            else:
                ended = await _read_stream(response, plan)
    except httpx.HTTPError:
        ended = False
    return Seen(plan, request_id, ended, status)


async def _read_stream(response: httpx.Response, plan: Plan) -> bool:
    chunks = 0
    async for line in response.aiter_lines():
        if line == "data: [DONE]":
            return True
        chunks += line.startswith("data: ")
        if plan.leaves_after is not None and chunks >= plan.leaves_after:
            return False
    return False
