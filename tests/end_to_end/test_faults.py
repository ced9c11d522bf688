"""Nothing is lost, doubled or invented while everything that can go wrong does.

In CI with few requests. In full, with 20,000 of them, on a machine with PostgreSQL and Redis:

    FAULTS_REQUESTS=20000 uv run pytest tests/end_to_end/test_faults.py

`FAULTS_SEED` repeats the same requests and the same order of faults.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.chaos import Site, site
from tests.end_to_end.odd_upstream import ESTIMATED, EXACT, OddUpstream, odd_upstream
from tests.end_to_end.test_exact_metering import CARD
from tests.end_to_end.traffic import PATIENCE_SECONDS, Plan, Seen, perform

REQUESTS = int(os.environ.get("FAULTS_REQUESTS", "1500"))
SEED = int(os.environ.get("FAULTS_SEED", "20261129"))
ROUNDS = max(1, min(8, REQUESTS // 2_500))
AT_ONCE = 10 if REQUESTS <= 5_000 else 24
LEAVING = 0.1

type Record = tuple[str, str, int, int, int, int, bool, int]
"""Model, outcome, status, prompt, cached, completion, estimated, charged ppt."""


@pytest.fixture
def upstream() -> Iterator[OddUpstream]:
    with odd_upstream(list(CARD)) as made:
        yield made


@pytest.fixture
def running(tmp_path: Path, upstream: OddUpstream) -> Iterator[Site]:
    with site(tmp_path, UPSTREAM_URL=upstream.url) as made:
        yield made


@pytest.mark.timeout(3_600 if REQUESTS > 2_000 else 300)
def test_every_request_whose_end_was_seen_is_recorded_and_charged_once(running: Site, upstream: OddUpstream) -> None:
    chance = random.Random(SEED)
    seen = asyncio.run(_traffic_under_faults(running, chance))
    running.wait_until_settled()
    records = _records(running)

    ended = {one.request_id for one in seen if one.ended}
    begun = {one.request_id for one in seen if one.status == 200}
    refused = Counter(one.status for one in seen if one.status not in (0, 200))
    print(
        f"{len(seen)} requests, {len(ended)} ended, {len(begun)} begun, refused {dict(refused)}, {len(records)} records"
    )
    assert len(seen) >= REQUESTS
    # Faults may cut many requests, but not all that matters may happen to the few that are left.
    assert len(ended) > len(seen) // 2
    assert ended <= records.keys()
    assert begun <= records.keys()

    expected = 0
    for id, (model, _, status, *counts, estimated, charged) in records.items():
        if not 200 <= status < 300:
            assert charged == 0
            continue
        delivered = upstream.delivered[id]
        # A stream that its client left, or that was cut, before the counts came is estimated too.
        assert estimated or delivered.kind in EXACT
        if not estimated:
            assert tuple(counts) == delivered[1:], (id, delivered)
        assert charged == _cost(model, *counts), id
        expected += _cost(model, *counts) if estimated else _cost(model, *delivered[1:])
    for id in ended:
        assert records[id][-2] == (upstream.delivered[id].kind in ESTIMATED)
    assert int(running.rows("select coalesce(sum(amount_ppt), 0) from billing_charge")[0][0]) == expected
    assert int(running.rows("select coalesce(sum(amount_ppt), 0) from billing_rollup")[0][0]) == expected
    output = running.installed.manage("reconcile")
    assert "0 records wait to be rated; 0 set aside, 0 unpriced." in output
    assert output.endswith("No difference.\n")


async def _traffic_under_faults(running: Site, chance: random.Random) -> list[Seen]:
    """Requests until there are enough of them and every fault has happened."""
    seen: list[Seen] = []
    begun = 0
    faults = [fault for _ in range(ROUNDS) for fault in chance.sample(running.faults, len(running.faults))]
    fault_chance = random.Random(chance.random())

    def hurt() -> None:
        for number, fault in enumerate(faults):
            due = REQUESTS * (number + 1) // (len(faults) + 2)
            while len(seen) < due:
                time.sleep(0.02)
            fault(fault_chance)

    async with AsyncExitStack() as stack:
        headers = {"Authorization": f"Bearer {running.installed.secret}"}
        client = await stack.enter_async_context(httpx.AsyncClient(headers=headers, timeout=PATIENCE_SECONDS))
        hurting = asyncio.create_task(asyncio.to_thread(hurt))

        async def work() -> None:
            nonlocal begun
            while begun < REQUESTS or not hurting.done():
                begun += 1
                seen.append(await perform(client, _plan(chance), url=chance.choice(running.webs).url))

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await hurting
    return seen


def _plan(chance: random.Random) -> Plan:
    kind = chance.choice(EXACT + ESTIMATED)
    prompt = chance.randint(1, 4_000)
    cached = prompt + 50 if kind == "more cached than prompt" else chance.randint(0, prompt)
    asked = {"kind": kind, "prompt": prompt, "cached": cached, "completion": chance.randint(4, 2_000)}
    leaves = chance.random() < LEAVING
    stream = leaves or chance.random() < 0.6
    return Plan(chance.choice(list(CARD)), json.dumps(asked), stream, chance.randint(1, 4) if leaves else None)


def _records(running: Site) -> dict[str, Record]:
    rows = running.rows(
        "select r.id, r.model, r.outcome, r.status, r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.estimated,"
        " coalesce((select sum(amount_ppt) from billing_charge c where c.record_id = r.id), 0)"
        " from billing_usagerecord r"
    )
    return {id.hex: (*rest, int(charged)) for id, *rest, charged in rows}


def _cost(model: str, prompt: int, cached: int, completion: int) -> int:
    input_ppt, cached_ppt, output_ppt = CARD[model]
    return (prompt - cached) * input_ppt + cached * cached_ppt + completion * output_ppt
