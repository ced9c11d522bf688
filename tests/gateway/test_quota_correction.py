"""Counters are brought to the ledger: up at once; down only by what it lacked each time, for records may be late."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from billing.models import Source
from billing.quota import Period, period_at
from gateway import admission
from gateway.admission import LOOKS, NO_SITE_LIMITS, Admission, Ask
from gateway.caller import Allowance, Caller
from gateway.gates import LocalGates

NAME = "points:team:1"
CALLER = Caller(1, 2, 3, Source.API, allowance=Allowance(team_points_ppt=1_000))


class Ledger:
    def __init__(self) -> None:
        self.used_ppt = 0

    def read(self, caller: Caller, key_id: int | None, card: object, now: float) -> tuple[Period, int]:
        return period_at("day", caller.allowance.zone, datetime.fromtimestamp(now, UTC)), self.used_ppt


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    made = Ledger()
    monkeypatch.setattr(admission, "_read_period", made.read)
    monkeypatch.setattr(admission, "SHIPPED_SECONDS", 0)
    return made


async def admitted(counted_ppt: int) -> Admission:
    """A call has come to so many picopoints."""
    made = Admission(LocalGates(), limits=NO_SITE_LIMITS)
    ticket = await made.admit(CALLER, Ask("chat.completions", "a-model"))
    made.counters.leave(ticket.call_id, ticket.gates, spent_ppt=counted_ppt)
    return made


def test_what_the_counter_missed_is_added_at_once(ledger: Ledger) -> None:
    async def scene() -> None:
        made = await admitted(10)
        ledger.used_ppt = 40
        await made.correct()
        assert await made.counters.used(NAME) == 40

    asyncio.run(scene())


def test_late_records_are_not_taken_for_over_counting(ledger: Ledger) -> None:
    async def scene() -> None:
        made = await admitted(40)
        for late_ppt in (0, 0, 40, 0, 0, 40):
            ledger.used_ppt = late_ppt
            await made.correct()
            assert await made.counters.used(NAME) == 40

    asyncio.run(scene())


def test_what_the_ledger_lacks_each_time_is_taken_back_once(ledger: Ledger) -> None:
    async def scene() -> None:
        made = await admitted(50)
        stands_at = []
        for has_ppt in (0, 20, 15, *[20] * LOOKS):
            ledger.used_ppt = has_ppt
            await made.correct()
            stands_at.append(await made.counters.used(NAME))
        assert stands_at == [50, 50, 20, 20, 20, 20]

    asyncio.run(scene())


def test_a_lost_counter_begins_with_what_ended_right_before(ledger: Ledger) -> None:
    """Its record is on the way to the ledger."""

    async def scene() -> None:
        made = await admitted(10)
        made.counters = LocalGates()
        asyncio.get_running_loop().call_later(0.1, setattr, ledger, "used_ppt", 10)
        await made.admit(CALLER, Ask("chat.completions", "a-model"))
        assert await made.counters.used(NAME) == 10

    asyncio.run(scene())
