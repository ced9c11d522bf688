"""N requests in, N records out, and every sum equals what the backend says it generated."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.catalog import load
from tests.end_to_end.traffic import Seen, mixed_plans, run
from tests.installation import Installation, WebProcess, installation
from tests.services import wait_until

CHAT_MODELS = [model.id for model in load().chat_models()]

# Picopoints per token, typed from the published card: input, cache read, output.
CARD = {
    "DeepSeek-V4-Flash": (140_000, 2_800, 280_000),
    "DeepSeek-V4-Flash-Vision-Exp": (140_000, 2_800, 280_000),
    "DeepSeek-V4.1-Flash": (280_000, 5_600, 560_000),
    "Qwen3.8-Flash-Next": (140_000, 2_800, 280_000),
    "Qwen3.8-27B": (35_000, 700, 70_000),
    "GLM-5.3-Flash": (280_000, 5_600, 560_000),
    "MiMo-V2.6-Flash": (140_000, 2_800, 280_000),
    "MiniCPM5-2B": (35_000, 700, 70_000),
    "MiniCPM-V-4.7-1B": (35_000, 700, 70_000),
    "MiniCPM-V-4.7-35B-A3B": (35_000, 700, 70_000),
    "Gemma-4-31B-IT": (35_000, 700, 70_000),
}


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as made:
        made.environment["DEMO_URL"] = made.start_demo("--pace-seconds", "0")
        yield made


def test_a_thousand_mixed_requests_are_a_thousand_records_and_every_sum_agrees(installed: Installation) -> None:
    installed.start_worker()
    web = installed.start_web()
    plans = mixed_plans(CHAT_MODELS, count=1000, leaving=100)
    seen = asyncio.run(run(plans, url=web.url, secret=installed.secret, at_once=32))
    assert sum(one.ended for one in seen) == 900

    wait_until(lambda: _count(installed, "rated_at is not null") == 1000, what="1,000 rated records", seconds=90)
    assert _count(installed, "1 = 1") == 1000
    ids = {row[0].replace("-", "") for row in installed.query("select id from billing_usagerecord")}
    assert ids == {one.request_id for one in seen}

    expected = _cost_of(_demo_log(installed))
    charges = installed.query(
        "select r.model, sum(c.amount_ppt) from billing_charge c join billing_usagerecord r on r.id = c.record_id"
        " group by 1 having sum(c.amount_ppt) > 0"
    )
    rollups = installed.query("select model, sum(amount_ppt) from billing_rollup group by 1 having sum(amount_ppt) > 0")
    assert {model: int(amount) for model, amount in charges} == expected
    assert {model: int(amount) for model, amount in rollups} == expected
    assert _count(installed, "estimated") == 0
    total = sum(expected.values())
    points = f"{total // 10**12}.{total % 10**12:012d}".rstrip("0")
    assert points in _usage_page(installed, web)


def test_killing_the_web_process_loses_no_request_whose_end_was_seen(installed: Installation) -> None:
    first = installed.start_web()
    plans = mixed_plans(CHAT_MODELS, count=400, leaving=20)

    async def killed_in_the_middle() -> list[Seen]:
        running = asyncio.create_task(run(plans, url=first.url, secret=installed.secret, at_once=16))
        await asyncio.to_thread(_wait_for_generated, installed, 120)
        first.process.send_signal(signal.SIGKILL)
        return await running

    seen = asyncio.run(killed_in_the_middle())
    ended = {one.request_id for one in seen if one.ended}
    begun = {one.request_id for one in seen if one.request_id}
    assert len(ended) >= 100
    assert len(ended) < 400

    installed.start_web()
    installed.start_worker()
    wait_until(lambda: not _abandoned_segments(installed, first.process.pid), what="adoption of the journal")
    records = {
        row[0].replace("-", ""): row[1:]
        for row in installed.query("select id, status, outcome, completion_tokens from billing_usagerecord")
    }
    log = {line["request_id"].replace("-", ""): line for line in _demo_log(installed)}
    assert ended <= records.keys()
    assert {key: records[key][2] for key in ended} == {key: log[key]["completion_tokens"] for key in ended}
    # Calls that the kill cut are found too: each request the client saw begin has its record.
    assert begun <= records.keys()
    assert {records[key][1] for key in records.keys() - ended} <= {"interrupted", "ok", "client_gone"}


def _usage_page(installed: Installation, web: WebProcess) -> str:
    """What the owner reads."""
    with httpx.Client(base_url=web.url, follow_redirects=True, timeout=30) as browser:
        browser.get("/accounts/login/")
        form = {
            "login": installed.email,
            "password": installed.password,
            "csrfmiddlewaretoken": browser.cookies["tf_csrf"],
        }
        browser.post("/accounts/login/", data=form, headers={"Referer": web.url})
        return browser.get("/usage/").text


def _count(installed: Installation, condition: str) -> int:
    return int(installed.query(f"select count(*) from billing_usagerecord where {condition}")[0][0])


def _demo_log(installed: Installation) -> list[dict[str, Any]]:
    path = installed.folder / "demo.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _wait_for_generated(installed: Installation, count: int) -> None:
    wait_until(lambda: len(_demo_log(installed)) >= count, what=f"{count} generated answers")


def _abandoned_segments(installed: Installation, pid: int) -> list[Path]:
    return list((installed.folder / "var" / "journal").glob(f"*-{pid}-*.journal"))


def _cost_of(log: list[dict[str, Any]]) -> dict[str, int]:
    """Picopoints by model, of all that the backend generated. The card without rates costs nothing."""
    total: defaultdict[str, int] = defaultdict(int)
    for line in log:
        if line["model"] in CARD:
            input_ppt, cached_ppt, output_ppt = CARD[line["model"]]
            fresh = line["prompt_tokens"] - line["cached_tokens"]
            total[line["model"]] += (
                fresh * input_ppt + line["cached_tokens"] * cached_ppt + line["completion_tokens"] * output_ppt
            )
    return {model: amount for model, amount in total.items() if amount}
