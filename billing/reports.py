"""What a team used: one query object for screen, CSV and JSON, answered from the rollups alone.

Days that are summed already are read as such, everything else by the quarter hour.

Every sum of a report is added up from the same cells, so totals are the sums of their parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import cached_property, reduce
from itertools import chain, pairwise
from operator import or_
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo

from django.db import models
from django.db.models import F, Max, Q, Sum
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.models import ApiKey, User
from billing.buckets import (
    QUARTER,
    Interval,
    bucket_of,
    buckets,
    floor_quarter,
    midnight,
    number_expression,
    offset_expression,
    stretches,
)
from billing.day_sums import summed_days
from billing.models import DayRollup, Rollup, Source
from billing.pricing import format_points

# A hundred days by the hour.
MAX_BUCKETS = 2_500
# SQLite's sums end at 63 bits, 9.2 million points: amounts are summed in two halves.
_HALF = 10**9


class ReportError(ValueError):
    """A period that no report can show; the message is for the person who chose it."""


class GroupBy(models.TextChoices):
    MODEL = "model", _("Model")
    KEY = "key", _("Key")
    MEMBER = "member", _("Member")
    ENDPOINT = "endpoint", _("Endpoint")
    SOURCE = "source", _("Source")

    @property
    def column(self) -> str:
        return f"{self.value}_id" if self in {GroupBy.KEY, GroupBy.MEMBER} else str(self.value)


class Sums(NamedTuple):
    """What one part of a report adds up to. Tokens, pages and characters are units; the amount is picopoints."""

    requests: int = 0
    errors: int = 0
    input: int = 0
    cache_read: int = 0
    output: int = 0
    page: int = 0
    character: int = 0
    amount_ppt: int = 0

    @classmethod
    def of(cls, parts: Iterable[Sums]) -> Self:
        return cls(*map(sum, zip(*parts, strict=True)))

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read

    @property
    def tokens(self) -> int:
        return self.prompt + self.output

    @property
    def cache_share(self) -> float | None:
        """Part of the prompt that came from the cache, 0 to 1; None without a prompt."""
        return self.cache_read / self.prompt if self.prompt else None

    @property
    def points(self) -> str:
        return format_points(self.amount_ppt)


_UNIT_COLUMNS = ("input_units", "cache_read_units", "output_units", "page_units", "character_units")
_SUM_COLUMNS = ("requests", "errors", *_UNIT_COLUMNS)
_SUMMED: dict[str, Any] = {f"sum_{name}": Sum(name) for name in _SUM_COLUMNS} | {
    "sum_high": Sum(F("amount_ppt") / _HALF),
    "sum_low": Sum(F("amount_ppt") % _HALF),
}


def _sums(row: Mapping[str, Any]) -> Sums:
    amount_ppt = int(row["sum_high"] or 0) * _HALF + int(row["sum_low"] or 0)
    return Sums(*(int(row[f"sum_{name}"] or 0) for name in _SUM_COLUMNS))._replace(amount_ppt=amount_ppt)


type _Cell = tuple[datetime, tuple[str | int, ...], Sums]
"""Bucket, group and what they came to."""


class Group(NamedTuple):
    """One row of a report's grouping: the values in the columns, and how a person reads them."""

    key: tuple[str | int, ...]
    label: str


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
    filters: Mapping[GroupBy, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", floor_quarter(self.start))
        object.__setattr__(self, "end", _ceil_quarter(self.end))
        if self.start >= self.end:
            raise ReportError(gettext("The period ends before it begins."))
        shortest = timedelta(hours=1) if self.interval == Interval.HOUR else timedelta(days=1)
        if (self.end - self.start) / shortest > MAX_BUCKETS:
            raise ReportError(gettext("The period is too long to be shown by that interval."))

    @classmethod
    def for_days(cls, team_id: int, first: date, last: date, zone: ZoneInfo, **options: Any) -> Self:
        """Whole days of the zone, the last one included."""
        end = midnight(last + timedelta(days=1), zone)
        return cls(team_id, midnight(first, zone), end, zone, **options)

    def run(self) -> UsageReport:
        days, rest = self._days_and_rest()
        cells: dict[tuple[datetime, tuple[str | int, ...]], Sums] = {}
        for bucket, group, sums in chain(self._of_days(days), self._of_quarters(rest)):
            # Two offsets meet in one day, many days in one month.
            there = cells.get((bucket, group))
            cells[bucket, group] = Sums.of((there, sums)) if there else sums
        return UsageReport(self, cells)

    def _days_and_rest(self) -> tuple[list[datetime], list[tuple[datetime, datetime]]]:
        """The days that are summed already, and the stretches between them."""
        if self.interval == Interval.HOUR:
            return [], [(self.start, self.end)]
        summed = summed_days(self.team_id, self.start, self.end)
        starts = [*buckets(self.start, self.end, interval=Interval.DAY, zone=self.zone), self.end]
        days = [start for start, end in pairwise(starts) if summed.get(start) == end]
        # Days that follow on each other leave nothing between them.
        edges = [self.start, *(edge for day in days for edge in (day, summed[day])), self.end]
        rest = [(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
        return days, rest

    def _of_days(self, days: list[datetime]) -> Iterator[_Cell]:
        if not days:
            return
        rows = DayRollup.objects.filter(team_id=self.team_id, day_at__in=days, **self._named)
        for row in rows.values("day_at", *self._columns).annotate(**_SUMMED).order_by():
            bucket = row["day_at"]
            if self.interval == Interval.MONTH:
                bucket = midnight(bucket.astimezone(self.zone).date().replace(day=1), self.zone)
            yield bucket, tuple(row[column] for column in self._columns), _sums(row)

    def _of_quarters(self, rest: list[tuple[datetime, datetime]]) -> Iterator[_Cell]:
        if not rest:
            return
        within = reduce(or_, (Q(quarter_at__gte=start, quarter_at__lt=end) for start, end in rest))
        rows = (
            Rollup.objects.filter(within, team_id=self.team_id, **self._named)
            .annotate(offset=offset_expression(stretches(self.start, self.end, self.zone)))
            .annotate(number=number_expression(self.interval))
            .values("offset", "number", *self._columns)
            .annotate(**_SUMMED)
            .order_by()
        )
        for row in rows:
            bucket = bucket_of(row["number"], row["offset"], interval=self.interval, zone=self.zone)
            yield bucket, tuple(row[column] for column in self._columns), _sums(row)

    @property
    def _columns(self) -> list[str]:
        return [by.column for by in self.group_by]

    @property
    def _named(self) -> dict[str, str | int]:
        return {by.column: value for by, value in self.filters.items()}


@dataclass(frozen=True)
class UsageReport:
    """The answer: sums by bucket (its start in UTC) and group."""

    query: UsageQuery
    cells: Mapping[tuple[datetime, tuple[str | int, ...]], Sums]

    @cached_property
    def buckets(self) -> tuple[datetime, ...]:
        """All of the period, ascending, those without usage included."""
        query = self.query
        return tuple(buckets(query.start, query.end, interval=query.interval, zone=query.zone))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Most points first, then most tokens."""
        by_key = self._totals(1)
        ordered = sorted(by_key, key=lambda key: (-by_key[key].amount_ppt, -by_key[key].tokens, key))
        return tuple(_labelled(self.query, ordered))

    @cached_property
    def total(self) -> Sums:
        return Sums.of((Sums(), *self.cells.values()))

    @cached_property
    def by_bucket(self) -> Mapping[datetime, Sums]:
        return self._totals(0)

    @cached_property
    def by_group(self) -> Mapping[tuple[str | int, ...], Sums]:
        return self._totals(1)

    def _totals(self, side: int) -> dict[Any, Sums]:
        parts: dict[Any, list[Sums]] = {}
        for cell, sums in self.cells.items():
            parts.setdefault(cell[side], []).append(sums)
        return {key: Sums.of(found) for key, found in parts.items()}

    def cell(self, bucket: datetime, group: Group) -> Sums:
        return self.cells.get((bucket, group.key), Sums())

    def rows(self) -> Iterator[ReportRow]:
        """Bucket by bucket; one without usage has a row too, so that no day is missing."""
        used: dict[datetime, list[Group]] = {bucket: [] for bucket in self.buckets}
        order = {group.key: (place, group) for place, group in enumerate(self.groups)}
        for bucket, key in sorted(self.cells, key=lambda cell: order[cell[1]][0]):
            used[bucket].append(order[key][1])
        for bucket, groups in used.items():
            for group in groups:
                yield ReportRow(bucket, group, self.cell(bucket, group))
            if not groups:
                yield ReportRow(bucket, None, Sums())

    def label_of(self, by: GroupBy, value: str | int) -> str:
        return _names(by, {value}, team_id=self.query.team_id).get(value, str(value))


def usage_totals(team_id: int, start: datetime, end: datetime, **filters: str | int) -> Sums:
    """Sums over a period; filters are columns of `Rollup`, e.g. `key_id=3`."""
    rows = Rollup.objects.filter(team_id=team_id, quarter_at__gte=start, quarter_at__lt=end, **filters)
    return _sums(rows.aggregate(**_SUMMED))


def usage_by_bucket(
    team_id: int,
    start: datetime,
    end: datetime,
    zone: ZoneInfo,
    *,
    interval: Interval = Interval.DAY,
    group_by: GroupBy = GroupBy.MODEL,
    filters: Mapping[GroupBy, str | int] | None = None,
) -> UsageReport:
    return UsageQuery(team_id, start, end, zone, interval, (group_by,), filters or {}).run()


def day_totals(team_id: int, zone: ZoneInfo, *, days: int, now: datetime) -> Sums:
    """Sums of the last `days` days of the zone, today being one of them."""
    today = now.astimezone(zone).date()
    start, end = midnight(today - timedelta(days=days - 1), zone), midnight(today + timedelta(days=1), zone)
    return usage_totals(team_id, start, end)


def totals_by_model(team_id: int) -> dict[str, tuple[Sums, datetime]]:
    """Of all time: each model's sums, and the last quarter hour in which it was used."""
    rows = (
        Rollup.objects.filter(team_id=team_id).values("model").annotate(**_SUMMED, latest=Max("quarter_at")).order_by()
    )
    return {row["model"]: (_sums(row), row["latest"]) for row in rows}


def _ceil_quarter(at: datetime) -> datetime:
    floor = floor_quarter(at)
    return floor if floor == at else floor + QUARTER


# -- names --------------------------------------------------------------------------------------


def _labelled(query: UsageQuery, keys: list[tuple[str | int, ...]]) -> Iterator[Group]:
    names = [_names(by, {key[place] for key in keys}, team_id=query.team_id) for place, by in enumerate(query.group_by)]
    for key in keys:
        label = " · ".join(named.get(value, str(value)) for named, value in zip(names, key, strict=True))
        yield Group(key, label)


def _names(by: GroupBy, values: set[Any], *, team_id: int) -> dict[Any, str]:
    """How the values of one column read; values without a name show as they are."""
    if by == GroupBy.KEY:
        names = {key.pk: f"{key.name} ({key.hint})" for key in ApiKey.objects.filter(team_id=team_id, pk__in=values)}
        return {0: gettext("Without a key")} | names
    if by == GroupBy.MEMBER:
        return {0: gettext("Somebody who left")} | {user.pk: str(user) for user in User.objects.filter(pk__in=values)}
    if by == GroupBy.SOURCE:
        return {source.value: str(source.label) for source in Source}
    return {}
