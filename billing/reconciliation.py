"""Records = charges = rollups = quota counters = exports, worked out independently of how they were written.

Team by team and month by month, each in one consistent view of the database, so raters may go on meanwhile:

- every rated 2xx record has charges for exactly its counts, other records have none, each amount is units × price;
- every rollup cell is the sum of its records, charges and corrections;
- a day or month that is summed once more, in whichever grouping, is the sum of its quarter hours;
- an export's lines add up to its total line, and that to the rollups;
- a day whose records are pruned: what was pruned, plus records that are left, is its rollups;
- over everything: all charges and corrections together are all rollups together;
- every quota counter of a running period that can be read from here is what the ledger has for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Case, F, IntegerField, Min, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Greatest, Least

from billing import counters
from billing.buckets import Interval
from billing.cells import AMOUNT_AT, SUMS, Cell, Cells, Sums, ledger_cells, rollup_cells, team_ids
from billing.day_sums import DAY_LEVELS, MONTH_LEVELS, QUARTER_LEVELS, Span, summed_days, summed_months
from billing.exports import lines
from billing.models import Charge, Correction, DayRollup, PrunedDay, Rollup, SetAside, UsageRecord
from billing.pricing import MAX_PAGES, MAX_TOKENS, format_points
from billing.rebuilding import DAY, starts_at, used_days
from billing.report_models import Level, Summary
from billing.reports import UsageQuery
from billing.repricing import parts_of

CHUNK = timedelta(days=31)
# Enough to look into a difference; a broken day may hold a million requests.
MAX_IDS = 20
_HALF = 10**9
_COUNTED = {
    "prompt_tokens": (("input", "cache_read"), MAX_TOKENS),
    "completion_tokens": (("output",), MAX_TOKENS),
    "pages": (("page",), MAX_PAGES),
    "characters": (("character",), MAX_TOKENS),
}


class Difference(NamedTuple):
    """Two sides that should be equal; the requests concerned, as far as they are known."""

    text: str
    request_ids: tuple[UUID, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.text, *map(str, self.request_ids)])


def reconcile(*, start: date | None = None, end: date | None = None) -> Iterator[Difference]:
    """Every difference in the UTC days from `start` to `end` (both included); over all days the grand total as well."""
    for team_id in list(team_ids()):
        first, last = used_days(team_id)
        at, until = starts_at(max(first, start or first)), starts_at(min(last, end or last)) + DAY
        while at < until:
            yield from _consistent(team_id, at, min(at + CHUNK, until))
            at += CHUNK
    if not start and not end:
        yield from _grand_total()
    if not end:
        yield from map(Difference, counters.differences())
    yield from _rejected(settings.DATA_DIR / "journal" / "rejected.jsonl")


class Backlog(NamedTuple):
    """What no sum holds yet, and what waits for a person."""

    waiting: int
    oldest: datetime | None
    set_aside: int
    unpriced: int


def backlog() -> Backlog:
    waiting = UsageRecord.objects.filter(rated_at=None)
    oldest = waiting.aggregate(oldest=Min("started_at"))["oldest"]
    unpriced = UsageRecord.objects.filter(unpriced=True).count()
    return Backlog(waiting.count(), oldest, SetAside.objects.count(), unpriced)


@transaction.atomic
def _consistent(team_id: int, start: datetime, end: datetime) -> list[Difference]:
    _see_one_moment()
    return [
        *_records_and_charges(team_id, start, end),
        *_cells(team_id, start, end),
        *_summed_spans(team_id, start, end),
        *_exports(team_id, start, end),
    ]


def _see_one_moment() -> None:
    # On SQLite a transaction is one; in tests it is too late to ask for it.
    if connection.vendor == "postgresql" and len(connection.atomic_blocks) == 1:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


# -- records and charges ------------------------------------------------------------------------


def _records_and_charges(team_id: int, start: datetime, end: datetime) -> Iterator[Difference]:
    records = UsageRecord.objects.filter(
        team_id=team_id, started_at__gte=start, started_at__lt=end, rated_at__isnull=False
    )
    suspects = list(_otherwise_charged(records).values_list("id", flat=True).iterator())
    aside = set(SetAside.objects.filter(record_id__in=suspects).values_list("record_id", flat=True))
    for id in suspects:
        if id not in aside and not _is_charged_by_correction(id):
            yield Difference("charges are not those of the record's counts:", (id,))
    odd = Charge.objects.filter(record__in=records).exclude(amount_ppt=F("units") * F("price_ppt"))
    for id in odd.values_list("record_id", flat=True).iterator():
        yield Difference("a charge is not units × price:", (id,))
    for id in _odd_corrections(records):
        yield Difference("charge and corrections do not come to the last correction's price:", (id,))


def _otherwise_charged(records: QuerySet[UsageRecord]) -> QuerySet[UsageRecord]:
    """Records whose charges hold other units than their counts."""
    is_answered = Q(status__gte=200, status__lt=300)
    equal = Q()
    for count, (meters, ceiling) in _COUNTED.items():
        charged = Sum("charges__units", filter=Q(charges__meter__in=meters), default=0)
        limited = Greatest(Least(F(count), Value(ceiling)), Value(0))
        due = Case(When(is_answered, then=limited), default=Value(0), output_field=IntegerField())
        records = records.annotate(**{f"charged_{count}": charged, f"due_{count}": due})
        equal &= Q(**{f"charged_{count}": F(f"due_{count}")})
    return records.order_by().exclude(equal)


def _is_charged_by_correction(id: UUID) -> bool:
    """A record that was set aside has no charges; its price came with a correction."""
    if not Correction.objects.filter(record_id=id).exists():
        return False
    record, parts = UsageRecord.objects.get(id=id), parts_of([id]).get(id, {})
    return all(
        sum(parts[meter].units for meter in meters if meter in parts) == max(0, min(getattr(record, count), ceiling))
        for count, (meters, ceiling) in _COUNTED.items()
    )


def _odd_corrections(records: QuerySet[UsageRecord]) -> Iterator[UUID]:
    corrected = Correction.objects.filter(record__in=records)
    booked: defaultdict[UUID, int] = defaultdict(int)
    for id, delta_ppt in corrected.values_list("record_id", "amount_delta_ppt"):
        booked[id] += delta_ppt
    ids = list(booked)
    for begin in range(0, len(ids), 500):
        some = ids[begin : begin + 500]
        for id, amount_ppt in Charge.objects.filter(record_id__in=some).values_list("record_id", "amount_ppt"):
            booked[id] += amount_ppt
        now = parts_of(some)
        for id in some:
            if booked[id] != sum(part.amount_ppt for part in now.get(id, {}).values()):
                yield id


# -- rollups ------------------------------------------------------------------------------------


def _cells(team_id: int, start: datetime, end: datetime) -> Iterator[Difference]:
    rollups, ledger = rollup_cells(team_id, start, end), ledger_cells(team_id, start, end)
    pruned = {
        day.day: day for day in PrunedDay.objects.filter(team_id=team_id, day__gte=start.date(), day__lt=end.date())
    }
    for cell in sorted(rollups.keys() | ledger.keys()):
        there, due = rollups.get(cell), ledger.get(cell)
        if there != due and cell.starts_at.date() not in pruned:
            yield Difference(f"rollup {cell}: {_text(there)} but records and charges {_text(due)}:", _ids(cell))
    for day, seal in pruned.items():
        summed, left = _of_day(rollups, day), _of_day(ledger, day)
        whole = left[0] + seal.requests, left[1] + seal.amount_ppt
        if summed != whole:
            text = f"{summed[0]} requests, {format_points(summed[1])} points, pruned and left"
            yield Difference(f"rollups of {day} team {team_id}: {text} {whole[0]}, {format_points(whole[1])}")


def _text(sums: Sums | None) -> str:
    if sums is None:
        return "nothing"
    requests, errors, amount_ppt, *units = sums
    return (
        f"{requests} requests, {errors} errors, {'/'.join(map(str, units))} units, {format_points(amount_ppt)} points"
    )


def _of_day(cells: Cells, day: date) -> tuple[int, int]:
    found = [sums for cell, sums in cells.items() if cell.starts_at.date() == day]
    return sum(sums[0] for sums in found), sum(sums[AMOUNT_AT] for sums in found)


def _ids(cell: Cell) -> tuple[UUID, ...]:
    named: dict[str, Any] = cell._asdict()
    del named["quarter"]
    begins = cell.starts_at
    found = UsageRecord.objects.filter(
        **named, started_at__gte=begins, started_at__lt=begins + timedelta(minutes=15), rated_at__isnull=False
    )
    return tuple(found.order_by("started_at").values_list("id", flat=True)[:MAX_IDS])


def _summed_spans(team_id: int, start: datetime, end: datetime) -> Iterator[Difference]:
    """Days and months that reports may take as they are summed."""
    of_team = {"team_id": team_id}
    for begins, ends in summed_days(team_id, start, end).items():
        cells = DayRollup.objects.filter(day_at=begins, **of_team)
        within = Summary.objects.filter(starts_at__gte=begins, starts_at__lt=ends, **of_team)
        sums = [
            (cells, MONTH_LEVELS[Level.CELL_MONTH]),
            *_summaries(DAY_LEVELS, begins, of_team),
            *(
                (within.filter(level=level).annotate(quarter_at=F("starts_at")), ("quarter_at", *columns))
                for level, columns in QUARTER_LEVELS.items()
            ),
        ]
        yield from _odd_span("day", team_id, (begins, ends), sums)
    for begins, ends in summed_months(team_id, start, end).items():
        yield from _odd_span("month", team_id, (begins, ends), list(_summaries(MONTH_LEVELS, begins, of_team)))


type _Summed = tuple[QuerySet[Any], Sequence[str]]


def _summaries(levels: Mapping[Level, Sequence[str]], begins: datetime, of_team: dict[str, int]) -> Iterator[_Summed]:
    for level, columns in levels.items():
        yield Summary.objects.filter(level=level, starts_at=begins, **of_team), columns


def _odd_span(kind: str, team_id: int, span: Span, sums: Sequence[_Summed]) -> Iterator[Difference]:
    rollups = Rollup.objects.filter(team_id=team_id, quarter_at__gte=span[0], quarter_at__lt=span[1])
    if any(_sums_of(rows, columns) != _sums_of(rollups, columns) for rows, columns in sums):
        yield Difference(f"the summed {kind} of team {team_id} from {span[0]:%Y-%m-%d %H:%M} UTC is not its rollups")


def _sums_of(rows: QuerySet[Any], columns: Sequence[str]) -> set[tuple[Any, ...]]:
    # The team is always one: without any column it would be all of them that are told apart.
    groups = rows.order_by().values_list("team_id", *columns)
    return set(groups.annotate(**{f"sum_{name}": Sum(name) for name in SUMS}))


# -- exports and totals -------------------------------------------------------------------------


def _exports(team_id: int, start: datetime, end: datetime) -> Iterator[Difference]:
    report = UsageQuery(team_id, start, end, ZoneInfo("UTC"), Interval.DAY).run()
    rows = [list(line) for line in lines(report)]
    points = [_ppt(str(row[-1])) for row in rows[1:]]
    requests = [int(row[-8]) for row in rows[1:]]
    rollups = Rollup.objects.filter(team_id=team_id, quarter_at__gte=start, quarter_at__lt=end)
    there = _total(rollups, "amount_ppt"), rollups.aggregate(n=Sum("requests", default=0))["n"]
    for name, found in (("lines", (sum(points[:-1]), sum(requests[:-1]))), ("total", (points[-1], requests[-1]))):
        if found != there:
            text = f"{found[1]} requests, {format_points(found[0])} points"
            what = f"export of team {team_id} from {start:%Y-%m-%d}, {name}"
            yield Difference(f"{what}: {text}, rollups {there[1]}, {format_points(there[0])}")


def _ppt(points: str) -> int:
    """Exact decimal text as picopoints, by its digits."""
    whole, _, fraction = points.partition(".")
    return int(whole + fraction.ljust(12, "0"))


def _grand_total() -> Sequence[Difference]:
    with transaction.atomic():
        _see_one_moment()
        charged = _total(Charge.objects.all(), "amount_ppt") + _total(Correction.objects.all(), "amount_delta_ppt")
        summed = _total(Rollup.objects.all(), "amount_ppt")
    if charged == summed:
        return []
    return [Difference(f"all charges come to {format_points(charged)} points, all rollups to {format_points(summed)}")]


def _total(rows: QuerySet[Any], amount: str) -> int:
    halves = rows.aggregate(high=Sum(F(amount) / _HALF, default=0), low=Sum(F(amount) % _HALF, default=0))
    return int(halves["high"]) * _HALF + int(halves["low"])


def _rejected(file: Path) -> Iterator[Difference]:
    """Records that the database would not take; the shipper keeps them in this file."""
    if file.exists() and (count := len(file.read_bytes().splitlines())):
        yield Difference(f"{count} records were refused by the database and lie in {file}")
