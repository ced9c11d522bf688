"""Nothing is lost, doubled or invented while everything that can go wrong does.

In CI with few requests. In full, with 20,000 of them, on a machine with PostgreSQL and Redis:

    FAULTS_REQUESTS=20000 uv run pytest tests/end_to_end/test_faults.py

`FAULTS_SEED` repeats the same requests and the same order of faults.
"""

from __future__ import annotations

import asyncio
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
from tests.end_to_end.fault_traffic import DECISION, PAGES, SPEECH, Seen, perform, wish
from tests.end_to_end.odd_upstream import ESTIMATED, EXACT, OddUpstream, odd_upstream
from tests.end_to_end.test_exact_metering import CARD

REQUESTS = int(os.environ.get("FAULTS_REQUESTS", "1500"))
SEED = int(os.environ.get("FAULTS_SEED", "20261129"))
ROUNDS = max(1, min(8, REQUESTS // 2_500))
AT_ONCE = 10 if REQUESTS <= 5_000 else 24
AWAY_SECONDS = 4.0 if REQUESTS <= 5_000 else 60.0
PATIENCE_SECONDS = 60.0
# Picopoints a unit: prompt, cached, completion, page, character.
PRICES = {model: (*prices, 0, 0) for model, prices in CARD.items()} | {
    PAGES: (0, 0, 0, 1_000_000_000, 0),
    SPEECH: (0, 0, 0, 0, 35_000),
    DECISION: (35_000, 35_000, 0, 0, 0),
}

type Record = tuple[str, int, tuple[int, ...], bool, int]
"""Model, status, counts in the order of `PRICES`, estimated, charged ppt."""


@pytest.fixture
def upstream() -> Iterator[OddUpstream]:
    with odd_upstream(list(PRICES), seed=SEED) as made:
        yield made


@pytest.fixture
def running(tmp_path: Path, upstream: OddUpstream) -> Iterator[Site]:
    # Points are counted, of which there are enough: at the end the counters are the ledger, too.
    with site(tmp_path, away_seconds=AWAY_SECONDS, UPSTREAM_URL=upstream.url, TEAM_POINTS_LIMIT="10000") as made:
        yield made


@pytest.mark.timeout(3_600 if REQUESTS > 2_000 else 900)
def test_every_request_whose_end_was_seen_is_recorded_and_charged_once(running: Site, upstream: OddUpstream) -> None:
    chance = random.Random(SEED)
    seen = asyncio.run(_traffic_under_faults(running, chance))
    running.wait_until_settled()
    records = _records(running)

    ended = {one.request_id for one in seen if one.ended}
    begun = {one.request_id for one in seen if one.status == 200}
    refused = Counter(one.status for one in seen if one.status not in (0, 200))
    paths = Counter(one.path for one in seen if one.ended)
    print(f"{len(seen)} requests, {len(ended)} ended, {len(begun)} begun, refused {dict(refused)}, {dict(paths)},")
    print(f"{len(records)} records")
    assert len(seen) >= REQUESTS
    # Faults may cut many requests, but not all that matters may happen to the few that are left.
    assert len(ended) > len(seen) // 2
    assert ended <= records.keys()
    assert begun <= records.keys()
    # Without the database requests go on.
    assert running.closures
    for began, over in running.closures:
        assert sum(one.ended and began < one.began_at and one.ended_at < over for one in seen) > 0

    expected = 0
    for id, (model, status, counts, estimated, charged) in records.items():
        if not 200 <= status < 300:
            assert charged == 0
            continue
        delivered = upstream.delivered[id]
        # A stream that its client left, or that was cut, before the counts came is estimated too.
        assert estimated or delivered.kind in EXACT
        if not estimated:
            assert counts == delivered[1:], (id, delivered)
        assert charged == _cost(model, counts), id
        expected += _cost(model, counts if estimated else delivered[1:])
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
                seen.append(await perform(client, wish(chance, list(CARD)), url=chance.choice(running.webs).url))

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        await hurting
    return seen


def _records(running: Site) -> dict[str, Record]:
    rows = running.rows(
        "select r.id, r.model, r.status, r.estimated,"
        " coalesce((select sum(amount_ppt) from billing_charge c where c.record_id = r.id), 0),"
        " r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.pages, r.characters"
        " from billing_usagerecord r"
    )
    return {
        id.hex: (model, status, tuple(counts), estimated, int(charged))
        for id, model, status, estimated, charged, *counts in rows
    }


def _cost(model: str, counts: tuple[int, ...]) -> int:
    prompt, cached, *others = counts
    return sum(units * price for units, price in zip((prompt - cached, cached, *others), PRICES[model], strict=True))
