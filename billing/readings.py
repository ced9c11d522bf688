"""From which sums a question is read: the coarsest ones that still tell apart what it asks for.

A question by model over a year reads twelve months of a few rows each, the same by key twelve rows a key; what is not
summed yet is read from the quarter hours. Whatever is chosen, the answer is the sum of the same rollups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import models
from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from billing.buckets import Interval, bucket_of, midnight, number_expression, offset_expression, stretches
from billing.day_sums import Span
from billing.models import DayRollup, Rollup
from billing.pieces import Pieces, Summed, common, pieces
from billing.report_models import Level, Summary
from billing.sums import Sums, summed, sums_of


class GroupBy(models.TextChoices):
    MODEL = "model", _("Model")
    KEY = "key", _("Key")
    MEMBER = "member", _("Member")
    ENDPOINT = "endpoint", _("Endpoint")
    SOURCE = "source", _("Source")

    @property
    def column(self) -> str:
        return f"{self.value}_id" if self in {GroupBy.KEY, GroupBy.MEMBER} else str(self.value)

    @property
    def is_number(self) -> bool:
        return self in {GroupBy.KEY, GroupBy.MEMBER}


type Value = str | int
type GroupKey = tuple[Value, ...]
type Cell = tuple[datetime, GroupKey]
"""The start of a bucket (in UTC), and the values of a group."""


class _Levels(NamedTuple):
    quarter: Level | None
    day: Level | None
    month: Level


_OF_MODELS = _Levels(Level.MODEL_QUARTER, Level.MODEL_DAY, Level.MODEL_MONTH)
_OF_KEYS = _Levels(None, Level.KEY_DAY, Level.KEY_MONTH)
_OF_MEMBERS = _Levels(None, Level.MEMBER_DAY, Level.MEMBER_MONTH)
_OF_CELLS = _Levels(None, None, Level.CELL_MONTH)
MODEL_COLUMNS = frozenset({GroupBy.MODEL, GroupBy.ENDPOINT, GroupBy.SOURCE})


def _levels(columns: Collection[GroupBy]) -> _Levels:
    asked = frozenset(columns)
    if asked <= MODEL_COLUMNS:
        return _OF_MODELS
    if asked == {GroupBy.KEY}:
        return _OF_KEYS
    return _OF_MEMBERS if asked == {GroupBy.MEMBER} else _OF_CELLS


@dataclass(frozen=True)
class Reading:
    """What is asked of a team's sums, cut into buckets at `edges`; one bucket without an `interval`.

    `filters` gives the value each column has to have, `only` the values that the one column grouped by may have.
    """

    team_id: int
    edges: Sequence[datetime]
    zone: ZoneInfo
    interval: Interval | None = None
    group_by: tuple[GroupBy, ...] = ()
    filters: Mapping[GroupBy, Value] = field(default_factory=dict)
    only: Collection[Value] | None = None

    def cells(self, known: Summed | None = None) -> dict[Cell, Sums]:
        """`known` saves asking what is summed within the period."""
        start, end = self.edges[0], self.edges[-1]
        known = Summed.within(self.team_id, start, end) if known is None else known
        # No day lies in an hour.
        parts = Pieces([], [], [(start, end)]) if self.interval == Interval.HOUR else pieces(self.edges, known)
        levels = _levels({*self.group_by, *self.filters})
        cells: dict[Cell, Sums] = {}
        for cell, sums in self._rows(levels, parts.months, parts.days, parts.quarters, known):
            # Two offsets meet in one day, many days in one month.
            there = cells.get(cell)
            cells[cell] = Sums.of((there, sums)) if there else sums
        return cells

    def _rows(
        self, levels: _Levels, months: list[Span], days: list[Span], quarters: list[Span], known: Summed
    ) -> Iterator[tuple[Cell, Sums]]:
        if months:
            yield from self._spans(Summary.objects.filter(level=levels.month), "starts_at", months)
        if days and levels.day is not None:
            yield from self._spans(Summary.objects.filter(level=levels.day), "starts_at", days)
        elif days:
            yield from self._spans(DayRollup.objects.all(), "day_at", days)
        if levels.quarter is not None:
            inside, quarters = common(quarters, known.days)
            if inside:
                rows = Summary.objects.filter(level=levels.quarter).annotate(quarter_at=F("starts_at"))
                yield from self._quarters(rows, "starts_at", inside)
        if quarters:
            yield from self._quarters(Rollup.objects.all(), "quarter_at", quarters)

    def _spans(self, rows: QuerySet[Any], time: str, spans: list[Span]) -> Iterator[tuple[Cell, Sums]]:
        """Rows of whole days or months, each of which lies in one bucket."""
        shown = [time, *self._columns] if self.interval else self._columns
        rows = self._within(rows, time, spans).order_by()
        found = rows.values(*shown).annotate(**summed()) if shown else [rows.aggregate(**summed())]
        for row in found:
            # What adds up nothing at all adds up to NULL.
            if row["sum_requests"] is not None:
                yield (self._bucket(row[time]) if self.interval else self.edges[0], self._group(row)), sums_of(row)

    def _bucket(self, at: datetime) -> datetime:
        day = at.astimezone(self.zone).date()
        return midnight(day.replace(day=1) if self.interval == Interval.MONTH else day, self.zone)

    def _quarters(self, rows: QuerySet[Any], time: str, spans: list[Span]) -> Iterator[tuple[Cell, Sums]]:
        if not self.interval:
            yield from self._spans(rows, time, spans)
            return
        counted = (
            self._within(rows, time, spans)
            .annotate(offset=offset_expression(stretches(self.edges[0], self.edges[-1], self.zone)))
            .annotate(number=number_expression(self.interval))
            .values("offset", "number", *self._columns)
            .annotate(**summed())
            .order_by()
        )
        for row in counted:
            bucket = bucket_of(row["number"], row["offset"], interval=self.interval, zone=self.zone)
            yield (bucket, self._group(row)), sums_of(row)

    def _within(self, rows: QuerySet[Any], time: str, spans: list[Span]) -> QuerySet[Any]:
        within = reduce(or_, (Q(**{f"{time}__gte": start, f"{time}__lt": end}) for start, end in spans))
        named: dict[str, Any] = {by.column: value for by, value in self.filters.items()}
        if self.only is not None:
            named[f"{self.group_by[0].column}__in"] = list(self.only)
        return rows.filter(within, team_id=self.team_id, **named)

    @property
    def _columns(self) -> list[str]:
        return [by.column for by in self.group_by]

    def _group(self, row: Mapping[str, Any]) -> GroupKey:
        return tuple(row[by.column] for by in self.group_by)
