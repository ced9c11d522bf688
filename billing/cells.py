"""The cells of the rollups: added to while rating, and worked out again from the ledger to compare or rebuild them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from django.db.models import BigIntegerField, Count, F, Func, Q, QuerySet, Sum
from django.db.models.sql.compiler import SQLCompiler

from billing.bulk import insert_json
from billing.models import Charge, Correction, Outcome, Rollup, SummedDay, UsageRecord
from billing.pricing import METERS

QUARTER_SECONDS = 900
# A day is summed once it has been over for so long; less old cells need not be looked for among summed days.
SUMMED_AFTER_SECONDS = 7_200
FAILED_OUTCOMES = frozenset({Outcome.ERROR.value, Outcome.INTERRUPTED.value})
_KEY = ("team_id", "quarter_at", "key_id", "member_id", "model", "endpoint", "source")
SUMS = ("requests", "errors", "amount_ppt", *(f"{meter}_units" for meter in METERS))
AMOUNT_AT = SUMS.index("amount_ppt")
UNITS_AT = {meter: SUMS.index(f"{meter}_units") for meter in METERS}
_ADDITIONS = ", ".join(f"{name} = billing_rollup.{name} + excluded.{name}" for name in SUMS)
_ADD_TO_CELL = f"({', '.join(_KEY)}) DO UPDATE SET {_ADDITIONS}"
# As in reports: SQLite's sums end at 63 bits.
_HALF = 10**9


class Cell(NamedTuple):
    """One quarter hour (its number since 1970) of one combination of who and what."""

    team_id: int
    quarter: int
    key_id: int
    member_id: int
    model: str
    endpoint: str
    source: str

    @property
    def starts_at(self) -> datetime:
        return datetime.fromtimestamp(self.quarter * QUARTER_SECONDS, UTC)

    def __str__(self) -> str:
        who = f"team {self.team_id} key {self.key_id} member {self.member_id}"
        return f"{self.starts_at:%Y-%m-%d %H:%M} {who} {self.model} {self.endpoint} {self.source}"


type Sums = list[int]
"""In the order of `SUMS`."""


class Cells(dict[Cell, Sums]):
    def of(self, cell: Cell) -> Sums:
        return self.get(cell) or self.setdefault(cell, [0] * len(SUMS))

    def add_to_rollups(self) -> None:
        # In key order: writers that add to the same cells wait for each other instead of deadlocking.
        rows = [_rollup(cell, sums) for cell, sums in sorted(self.items())]
        if rows:
            insert_json(Rollup, orjson.dumps(rows), on_conflict=_ADD_TO_CELL)
            # After the rollups: whoever sums a day meanwhile either waits for these rows or is found here.
            mark_stale({(cell.team_id, cell.starts_at) for cell in self if _may_be_summed(cell)})


def mark_stale(quarters: Iterable[tuple[int, datetime]]) -> None:
    """The summed days of these quarter hours no longer count.

    Written whether they counted or not: whoever sums one of them meanwhile holds its row, and comes first.
    """
    by_team: defaultdict[int, list[datetime]] = defaultdict(list)
    for team_id, quarter_at in sorted(quarters):
        by_team[team_id].append(quarter_at)
    for team_id, moments in by_team.items():
        days = SummedDay.objects.filter(team_id=team_id, starts_at__lte=moments[-1], ends_at__gt=moments[0])
        found = days.order_by("starts_at").values_list("pk", "starts_at", "ends_at")
        stale = [pk for pk, start, end in found if _any_in(start, end, moments)]
        if stale:
            SummedDay.objects.filter(pk__in=stale).update(is_stale=True)


def _any_in(start: datetime, end: datetime, moments: Sequence[datetime]) -> bool:
    """Whether one of the moments, ascending, lies in the span."""
    place = bisect_left(moments, start)
    return place < len(moments) and moments[place] < end


def _may_be_summed(cell: Cell) -> bool:
    return cell.quarter * QUARTER_SECONDS < time.time() - SUMMED_AFTER_SECONDS


def quarter_of(at: datetime) -> int:
    return int(at.timestamp()) // QUARTER_SECONDS


def _rollup(cell: Cell, sums: Sequence[int]) -> dict[str, Any]:
    starts_at = cell.starts_at.strftime("%Y-%m-%d %H:%M:%S.000000")
    return dict(zip(_KEY + SUMS, (*cell, *sums), strict=True)) | {"quarter_at": starts_at}


# -- read again ---------------------------------------------------------------------------------


class Quarter(Func):
    """The number since 1970 of the quarter hour that a time lies in, its fraction of a second cut off."""

    output_field = BigIntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: Any, **context: Any) -> Any:
        # SQLite rounds to milliseconds: 59.9999 s would be the next minute.
        template = f"CAST(strftime('%%%%s', substr(%(expressions)s, 1, 19)) AS INTEGER) / {QUARTER_SECONDS}"
        return self.as_sql(compiler, connection, template=template)

    def as_postgresql(self, compiler: SQLCompiler, connection: Any, **context: Any) -> Any:
        template = f"CAST(FLOOR(EXTRACT(EPOCH FROM %(expressions)s) / {QUARTER_SECONDS}) AS bigint)"
        return self.as_sql(compiler, connection, template=template)


def team_ids() -> Iterator[int]:
    """Every team that has records or rollups, ascending, by steps through an index instead of over all rows."""
    following = -1
    while True:
        firsts = [
            rows.filter(team_id__gt=following).order_by("team_id").values_list("team_id", flat=True).first()
            for rows in (UsageRecord.objects.all(), Rollup.objects.all())
        ]
        found = [first for first in firsts if first is not None]
        if not found:
            return
        following = min(found)
        yield following


def rollup_cells(team_id: int, start: datetime, end: datetime) -> Cells:
    rows = Rollup.objects.filter(team_id=team_id, quarter_at__gte=start, quarter_at__lt=end).order_by()
    cells = Cells()
    for quarter_at, *rest in rows.values_list("quarter_at", *_KEY[2:], *SUMS).iterator():
        cells[Cell(team_id, quarter_of(quarter_at), *rest[:5])] = rest[5:]
    return cells


def ledger_cells(team_id: int, start: datetime, end: datetime) -> Cells:
    """What the rollups have to say of a period, from rated records, their charges and the corrections."""
    cells = Cells()
    records = UsageRecord.objects.filter(
        team_id=team_id, started_at__gte=start, started_at__lt=end, rated_at__isnull=False
    )
    is_failed = Q(status__lt=200) | Q(status__gte=300) | Q(outcome__in=FAILED_OUTCOMES)
    counted = _by_cell(records, "").annotate(n=Count("id"), failed=Count("id", filter=is_failed))
    for *key, requests, errors in counted.values_list(*_columns(""), "n", "failed").iterator():
        sums = cells.of(Cell(team_id, *key))
        sums[0] += requests
        sums[1] += errors
    _add(cells, team_id, Charge.objects.filter(record__in=records), units="units", amount="amount_ppt")
    _add(cells, team_id, Correction.objects.filter(record__in=records), units="units_delta", amount="amount_delta_ppt")
    return cells


def _add(cells: Cells, team_id: int, rows: QuerySet[Any], *, units: str, amount: str) -> None:
    summed = _by_cell(rows, "record__").annotate(
        high=Sum(F(amount) / _HALF),
        low=Sum(F(amount) % _HALF),
        **{f"sum_{meter}": Sum(units, filter=Q(meter=meter), default=0) for meter in METERS},
    )
    names = (f"sum_{meter}" for meter in METERS)
    for *key, high, low, a, b, c, d, e in summed.values_list(*_columns("record__"), "high", "low", *names).iterator():
        sums = cells.of(Cell(team_id, *key))
        sums[AMOUNT_AT] += int(high) * _HALF + int(low)
        for meter, count in zip(METERS, (a, b, c, d, e), strict=True):
            sums[UNITS_AT[meter]] += count


def _columns(prefix: str) -> tuple[str, ...]:
    return ("quarter", *(f"{prefix}{name}" for name in _KEY[2:]))


def _by_cell(rows: QuerySet[Any], prefix: str) -> QuerySet[Any, Any]:
    named: QuerySet[Any, Any] = rows.order_by().annotate(quarter=Quarter(f"{prefix}started_at"))
    return named.values(*_columns(prefix))
