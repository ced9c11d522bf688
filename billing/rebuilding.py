"""Rollups written anew from the ledger, should they ever differ from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from django.db import connection, transaction
from django.db.models import Max, Min

from billing.buckets import QUARTER
from billing.cells import Cell, ledger_cells, mark_stale, rollup_cells, team_ids
from billing.latency import recount_latencies
from billing.models import PrunedDay, Rollup, UsageRecord

DAY = timedelta(days=1)


class Rebuilt(NamedTuple):
    """A team's UTC day and what was wrong in it; `kept` where its records are pruned and the rollups must stand."""

    team_id: int
    day: date
    wrong: list[Cell]
    kept: bool


def rebuild_rollups(*, start: date | None = None, end: date | None = None) -> Iterator[Rebuilt]:
    """Put right the rollups of the UTC days from `start` to `end` (both included), a team's day at a time.

    Each day is a transaction of its own that raters wait for; repeating it changes nothing.
    """
    for team_id in list(team_ids()):
        first, last = used_days(team_id)
        first, last = max(first, start or first), min(last, end or last)
        for number in range((last - first).days + 1):
            day = first + timedelta(days=number)
            if PrunedDay.objects.filter(team_id=team_id, day=day).exists():
                yield Rebuilt(team_id, day, [], kept=True)
                continue
            yield Rebuilt(team_id, day, _rebuild(team_id, day), kept=False)


def used_days(team_id: int) -> tuple[date, date]:
    """The first and the last UTC day of which a team has records or rollups."""
    found = [
        UsageRecord.objects.filter(team_id=team_id).aggregate(first=Min("started_at"), last=Max("started_at")),
        Rollup.objects.filter(team_id=team_id).aggregate(first=Min("quarter_at"), last=Max("quarter_at")),
    ]
    firsts = [row["first"].date() for row in found if row["first"]]
    lasts = [row["last"].date() for row in found if row["last"]]
    return min(firsts), max(lasts)


def starts_at(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


@transaction.atomic
def _rebuild(team_id: int, day: date) -> list[Cell]:
    hold_up_raters()
    start, end = starts_at(day), starts_at(day) + DAY
    rollups, ledger = rollup_cells(team_id, start, end), ledger_cells(team_id, start, end)
    wrong = sorted(cell for cell in rollups.keys() | ledger.keys() if rollups.get(cell) != ledger.get(cell))
    if wrong:
        Rollup.objects.filter(team_id=team_id, quarter_at__gte=start, quarter_at__lt=end).delete()
        ledger.add_to_rollups()
        mark_stale({(team_id, cell.starts_at) for cell in wrong})
    if recount_latencies(team_id, start, end):
        mark_stale((team_id, start + number * QUARTER) for number in range(DAY // QUARTER))
    return wrong


def hold_up_raters() -> None:
    """Whoever has charges on the way has also added to the rollups, or waits until this transaction is over."""
    # On SQLite an open transaction already is the only writer.
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {Rollup._meta.db_table} IN SHARE ROW EXCLUSIVE MODE")
