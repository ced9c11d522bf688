"""Messages, pages, characters and decisions under load and a kill: each answer has its record, to the unit."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.documents import data_url, pdf
from tests.installation import Installation, WebProcess, installation
from tests.services import wait_until

DOCUMENT = data_url(pdf("One\na", "Two\nb", "Three\nc", "Four\nd"), "application/pdf")
# Picopoints a unit: page, character, input token of a decision.
PRICES = {"ocr": 1_000_000_000, "speech": 35_000, "systemone": 35_000}


@dataclass(frozen=True)
class Seen:
    """What a client knows of its request. `units` is what it used, by its own count or its answer's."""

    path: str
    request_id: str = ""
    ended: bool = False
    units: int = 0


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as made:
        made.environment["DEMO_URL"] = made.start_demo("--pace-seconds", "0")
        yield made


def bodies(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    while True:
        wished = f"Hi [[tokens={chance.randint(1, 60)}]]"
        message = {"messages": [{"role": "user", "content": wished}], "max_tokens": 90, "stream": chance.random() < 0.5}
        yield "messages", {"model": chance.choice(["DeepSeek-V4-Flash", "GLM-5.3-Flash"]), **message}
        pages = sorted(chance.sample(range(4), chance.randint(1, 4)))
        document = {"type": "document_url", "document_url": DOCUMENT}
        yield "ocr", {"model": "MinerU2.5-Pro", "document": document, "pages": pages}
        yield "audio/speech", {"model": "OmniVoice", "input": chance.choice("a世👍\u0301") * chance.randint(1, 300)}
        question = {"type": "noul", "instructions": "word " * chance.randint(1, 40)}
        yield "systemone", {"model": "d3", "state": "x", "questions": {"q": question}}


async def run(web: WebProcess, secret: str, *, count: int, chance: random.Random) -> list[Seen]:
    gate = asyncio.Semaphore(12)
    made = bodies(chance)
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(base_url=f"{web.url}/v1", headers=headers, timeout=60, trust_env=False) as http:

        async def one(path: str, body: dict[str, Any]) -> Seen:
            request_id = ""
            try:
                async with gate, http.stream("POST", f"/{path}", json=body) as answer:
                    request_id = answer.headers["x-request-id"]
                    data = await answer.aread()
            except httpx.HTTPError:
                return Seen(path, request_id)
            assert answer.status_code == 200, data
            return Seen(path, request_id, ended=True, units=units_of(path, body, data))

        return await asyncio.gather(*[one(*next(made)) for _ in range(count)])


def units_of(path: str, body: dict[str, Any], data: bytes) -> int:
    match path:
        case "ocr":
            return int(json.loads(data)["usage_info"]["pages_processed"])
        case "audio/speech":
            return len(body["input"])
        case "systemone":
            return int(json.loads(data)["usage"]["input_tokens"])
    # The last event with usage: `message_start` has some too, of nothing yet.
    lines = data.decode().split("\n") if body["stream"] else [f"data: {data.decode()}"]
    said = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return int(next(one["usage"]["output_tokens"] for one in reversed(said) if "usage" in one))


def records(installed: Installation) -> dict[str, tuple[str, str, int]]:
    """Endpoint, outcome and units by request id."""
    rows = installed.query(
        "select id, endpoint, outcome, case endpoint when 'ocr' then pages when 'speech' then characters"
        " when 'systemone' then prompt_tokens else completion_tokens end from billing_usagerecord"
    )
    return {UUID(row[0]).hex: (row[1], row[2], row[3]) for row in rows}


NAMES = {"messages": "messages", "ocr": "ocr", "audio/speech": "speech", "systemone": "systemone"}


def expected(seen: list[Seen]) -> dict[str, tuple[str, str, int]]:
    return {UUID(one.request_id).hex: (NAMES[one.path], "ok", one.units) for one in seen if one.ended}


def test_every_request_has_its_record_and_the_charges_are_exact(installed: Installation) -> None:
    installed.start_worker()
    web = installed.start_web()
    seen = asyncio.run(run(web, installed.secret, count=400, chance=random.Random(5)))
    assert all(one.ended for one in seen)
    waiting = "select count(*) from billing_usagerecord where rated_at is not null"
    wait_until(lambda: installed.query(waiting) == [[400]], what="400 rated records", seconds=90)
    assert records(installed) == expected(seen)
    sums = installed.query(
        "select r.endpoint, sum(c.amount_ppt) from billing_charge c join billing_usagerecord r on r.id = c.record_id"
        " where r.endpoint != 'messages' group by 1"
    )
    assert {endpoint: int(amount) for endpoint, amount in sums} == {
        endpoint: price * sum(one.units for one in seen if NAMES[one.path] == endpoint)
        for endpoint, price in PRICES.items()
    }
    rollups = installed.query(
        "select endpoint, sum(amount_ppt) from billing_rollup where endpoint != 'messages' group by 1"
    )
    assert {endpoint: int(amount) for endpoint, amount in rollups} == {e: int(a) for e, a in sums}
    # Exits with 1, and this raises, where records, charges and rollups differ.
    installed.manage("reconcile")


def test_a_kill_loses_no_request_whose_end_was_seen(installed: Installation) -> None:
    first = installed.start_web()

    async def killed_in_the_middle() -> list[Seen]:
        running = asyncio.create_task(run(first, installed.secret, count=400, chance=random.Random(7)))
        log = installed.folder / "demo.jsonl"
        await asyncio.to_thread(wait_until, lambda: log.exists() and log.read_bytes().count(b"\n") > 100, what="work")
        first.process.send_signal(signal.SIGKILL)
        return await running

    seen = asyncio.run(killed_in_the_middle())
    ended = expected(seen)
    assert 50 < len(ended) < 400
    installed.start_web()
    wait_until(lambda: ended.keys() <= records(installed).keys(), what="records of what had ended", seconds=60)
    found = records(installed)
    assert {key: found[key] for key in ended} == ended
    # What the kill cut is found too, and said to be cut.
    begun = {UUID(one.request_id).hex for one in seen if one.request_id and not one.ended}
    wait_until(lambda: begun <= records(installed).keys(), what="records of what was cut", seconds=60)
    assert {found[1] for key, found in records(installed).items() if key in begun} <= {"interrupted", "ok"}
