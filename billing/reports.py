"""What a team used: one query object for screen, CSV and JSON, answered from sums alone, never from requests.

`run` gives every cell, `overview` what a page shows: all buckets, the largest groups, and the cells of a few of those.
Both are sums of the same rollups, and so are their totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from django.db.models import Max
from django.utils.translation import gettext

from billing.buckets import QUARTER, Interval, buckets, floor_quarter, midnight
from billing.group_names import Group, labelled, names_of
from billing.models import Rollup
from billing.pieces import Summed
from billing.readings import MODEL_COLUMNS, Cell, GroupBy, GroupKey, Reading, Value
from billing.report_models import Level, Summary
from billing.snapshots import one_moment
from billing.sums import Sums

__all__ = ["Group", "GroupBy", "ReportError", "Sums", "UsageQuery", "UsageReport"]

# A hundred days by the hour.
MAX_BUCKETS = 2_500
_SHORTEST = {Interval.HOUR: timedelta(hours=1), Interval.DAY: timedelta(days=1), Interval.MONTH: timedelta(days=28)}
# Cells that are read at a time when a whole report is streamed.
CELLS_AT_A_TIME = 20_000


class ReportError(ValueError):
    """A period that no report can show; the message is for the person who chose it."""


class ReportRow(NamedTuple):
    """One bucket of one group; without a group for a bucket in which nothing was used."""

    bucket: datetime
    group: Group | None
    sums: Sums


@dataclass(frozen=True)
class UsageQuery:
    """What is asked: whose usage, from when (inclusive) to when (exclusive), cut and grouped how.

    Times are widened to whole quarter hours. `filters` narrows by the columns of `GroupBy`.
    """

    team_id: int
    start: datetime
    end: datetime
    zone: ZoneInfo
    interval: Interval = Interval.DAY
    group_by: tuple[GroupBy, ...] = (GroupBy.MODEL,)
    filters: Mapping[GroupBy, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", floor_quarter(self.start))
        object.__setattr__(self, "end", _ceil_quarter(self.end))
        if self.start >= self.end:
            raise ReportError(gettext("The period ends before it begins."))
        if (self.end - self.start) / _SHORTEST[self.interval] > MAX_BUCKETS:
            raise ReportError(gettext("The period is too long to be shown by that interval."))

    @classmethod
    def for_days(cls, team_id: int, first: date, last: date, zone: ZoneInfo, **options: Any) -> Self:
        """Whole days of the zone, the last one included."""
        end = midnight(last + timedelta(days=1), zone)
        return cls(team_id, midnight(first, zone), end, zone, **options)

    def run(self) -> UsageReport:
        """Every cell: for a program, or a report of few groups."""
        with one_moment():
            cells = self.reading.cells()
        return UsageReport.of(self, cells)

    def overview(self, *, drawn: int, listed: int, known: Summed | None = None) -> UsageReport:
        """All buckets, the `listed` largest groups, and by bucket the amounts of the `drawn` largest.

        A team may have a thousand keys; a page shows a few of them.
        """
        with one_moment():
            known = self.summed() if known is None else known
            if set(self.group_by).issubset(MODEL_COLUMNS):
                return UsageReport.of(self, self.reading.cells(known))
            ranking = self.reading.ranking(known, limit=max(drawn, listed))
            only = {key[0] for key in list(ranking.sums)[:drawn]}
            amounts = replace(self.reading, only=only).amounts(known) if only else {}
            return UsageReport(self, {}, amounts, self._by_bucket(known), ranking.sums, ranking.total)

    def of_groups(self, keys: Iterable[GroupKey], known: Summed | None = None) -> UsageReport:
        """All buckets, and these groups without their cells: what another period's are held against."""
        with one_moment():
            known = self.summed() if known is None else known
            only = {key[0] for key in keys}
            sums = replace(self.reading, only=only).groups(known) if only else {}
            return UsageReport(self, {}, {}, self._by_bucket(known), sums, len(sums))

    def used(self, known: Summed | None = None) -> set[GroupKey]:
        """The models, endpoints and sources of the period, whatever the filters are."""
        reading = Reading(self.team_id, self.start, self.end, self.zone, group_by=MODEL_COLUMNS)
        with one_moment():
            return set(reading.groups(known))

    def _by_bucket(self, known: Summed) -> dict[datetime, Sums]:
        return {bucket: sums for (bucket, _), sums in replace(self.reading, group_by=()).cells(known).items()}

    def total(self) -> Sums:
        with one_moment():
            cells = replace(self.reading, interval=None, group_by=()).cells()
        return Sums.of((Sums(), *cells.values()))

    def ranked(self) -> tuple[Group, ...]:
        """Every group of the period."""
        with one_moment():
            ranking = self.reading.ranking()
        return tuple(labelled(self.team_id, self.group_by, tuple(ranking.sums)))

    def parts(self, groups: int) -> Iterator[UsageQuery]:
        """The same query a stretch of buckets at a time, so that a report of any size is read in bounded memory."""
        edges = (self.start, *self.buckets[1:], self.end)
        step = max(1, CELLS_AT_A_TIME // max(1, groups))
        for place in range(0, len(edges) - 1, step):
            start, end = edges[place], edges[min(place + step, len(edges) - 1)]
            if start < end:
                yield replace(self, start=start, end=end)

    def summed(self) -> Summed:
        return Summed.within(self.team_id, self.start, self.end)

    @cached_property
    def buckets(self) -> tuple[datetime, ...]:
        """The start of each (in UTC), ascending; that of the first may lie before the period."""
        return buckets(self.start, self.end, interval=self.interval, zone=self.zone)

    @property
    def reading(self) -> Reading:
        return Reading(self.team_id, self.start, self.end, self.zone, self.interval, self.group_by, self.filters)


@dataclass(frozen=True)
class UsageReport:
    """The answer: sums by bucket (its start in UTC) and group.

    An overview has its largest groups alone, of `count`, no cells, and the amounts (picopoints) of some of those.
    """

    query: UsageQuery
    cells: Mapping[Cell, Sums]
    amounts: Mapping[Cell, int]
    by_bucket: Mapping[datetime, Sums]
    by_group: Mapping[GroupKey, Sums]
    count: int

    @classmethod
    def of(cls, query: UsageQuery, cells: Mapping[Cell, Sums]) -> Self:
        by_group = _totals(cells, 1)
        amounts = {cell: sums.amount_ppt for cell, sums in cells.items()}
        return cls(query, cells, amounts, _totals(cells, 0), by_group, len(by_group))

    @property
    def buckets(self) -> tuple[datetime, ...]:
        """All of the period, ascending, those without usage included."""
        return self.query.buckets

    @cached_property
    def ranked(self) -> tuple[GroupKey, ...]:
        """Most points first, then most tokens."""
        sums = self.by_group
        return tuple(sorted(sums, key=lambda key: (-sums[key].amount_ppt, -sums[key].tokens, key)))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        return self.named(self.ranked)

    def named(self, keys: Iterable[GroupKey]) -> tuple[Group, ...]:
        return tuple(labelled(self.query.team_id, self.query.group_by, tuple(keys)))

    @cached_property
    def total(self) -> Sums:
        return Sums.of((Sums(), *self.by_bucket.values()))

    def rows(self, groups: Iterable[Group] | None = None) -> Iterator[ReportRow]:
        """Bucket by bucket, in the order of `groups`; a bucket without usage has a row too: no day is missing."""
        order = {group.key: (place, group) for place, group in enumerate(self.groups if groups is None else groups)}
        used: dict[datetime, list[Group]] = {bucket: [] for bucket in self.buckets}
        for bucket, key in sorted(self.cells, key=lambda cell: order[cell[1]][0]):
            used[bucket].append(order[key][1])
        for bucket, found in used.items():
            for group in found:
                yield ReportRow(bucket, group, self.cells[bucket, group.key])
            if not found:
                yield ReportRow(bucket, None, Sums())

    def label_of(self, by: GroupBy, value: Value) -> str:
        return names_of(by, {value}, team_id=self.query.team_id).get(value, str(value))


def usage_totals(team_id: int, start: datetime, end: datetime, **filters: Value) -> Sums:
    """Sums over a period of any length; filters are columns, e.g. `key_id=3`."""
    named = {by: filters[by.column] for by in GroupBy if by.column in filters}
    reading = Reading(team_id, start, end, ZoneInfo("UTC"), filters=named)
    with one_moment():
        cells = reading.cells()
    return Sums.of((Sums(), *cells.values()))


def usage_by_bucket(
    team_id: int,
    start: datetime,
    end: datetime,
    zone: ZoneInfo,
    *,
    interval: Interval = Interval.DAY,
    group_by: GroupBy = GroupBy.MODEL,
    filters: Mapping[GroupBy, Value] | None = None,
) -> UsageReport:
    return UsageQuery(team_id, start, end, zone, interval, (group_by,), filters or {}).run()


def day_totals(team_id: int, zone: ZoneInfo, *, days: int, now: datetime) -> Sums:
    """Sums of the last `days` days of the zone, today being one of them."""
    today = now.astimezone(zone).date()
    start, end = midnight(today - timedelta(days=days - 1), zone), midnight(today + timedelta(days=1), zone)
    return usage_totals(team_id, start, end)


def totals_by_model(team_id: int) -> dict[str, tuple[Sums, datetime]]:
    """Of all time: each model's sums, and the last quarter hour in which it was used."""
    ends = Rollup.objects.filter(team_id=team_id).order_by("quarter_at").values_list("quarter_at", flat=True)
    with one_moment():
        first, last = ends.first(), ends.last()
        if first is None or last is None:
            return {}
        start, end = first, last + QUARTER
        known = Summed.within(team_id, start, end)
        groups = Reading(team_id, start, end, ZoneInfo("UTC"), group_by=(GroupBy.MODEL,)).groups(known)
        latest = _latest_by_model(team_id, known)
    return {str(model): (sums, latest[str(model)]) for (model,), sums in groups.items()}


def _latest_by_model(team_id: int, known: Summed) -> dict[str, datetime]:
    """Summed quarters are few a day, so those are looked through; of the others only what came after them."""
    counted = max(known.days.values(), default=None)
    summaries = Summary.objects.filter(team_id=team_id, level=Level.MODEL_QUARTER)
    rollups = Rollup.objects.filter(team_id=team_id)
    if counted:
        rollups = rollups.filter(quarter_at__gte=counted)
    found: dict[str, datetime] = {}
    for rows, time in ((summaries, "starts_at"), (rollups, "quarter_at")):
        for model, at in rows.values("model").annotate(latest=Max(time)).order_by().values_list("model", "latest"):
            found[model] = max(at, found.get(model, at))
    return found


def _ceil_quarter(at: datetime) -> datetime:
    floor = floor_quarter(at)
    return floor if floor == at else floor + QUARTER


def _totals(cells: Mapping[Cell, Sums], side: int) -> dict[Any, Sums]:
    parts: dict[Any, list[Sums]] = {}
    for cell, sums in cells.items():
        parts.setdefault(cell[side], []).append(sums)
    return {key: Sums.of(found) for key, found in parts.items()}
