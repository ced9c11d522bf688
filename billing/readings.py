"""From which sums a question is read: the coarsest ones that still tell apart what it asks for.

A question by model over a year reads twelve months of a few rows each, the same by key twelve rows a key; what is not
summed yet is read from the quarter hours. Whatever is chosen, the answer is the sum of the same rollups. Each reading
is one statement over all of its sources: the database adds up, and only the answer's own rows come here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection, models
from django.utils.translation import gettext_lazy as _

from billing.buckets import Interval, buckets, cut
from billing.day_sums import Span
from billing.models import DayRollup, Rollup
from billing.pieces import Pieces, Summed, common, cut_pieces, whole_pieces
from billing.report_models import Level, Summary
from billing.sums import COUNTED, Sums, amount_columns, amount_of, by_amount, sum_columns, sums_of


class GroupBy(models.TextChoices):
    MODEL = "model", _("Model")
    KEY = "key", _("Key")
    MEMBER = "member", _("Member")
    ENDPOINT = "endpoint", _("Endpoint")
    SOURCE = "source", _("Source")

    @property
    def column(self) -> str:
        return f"{self.value}_id" if self.is_number else str(self.value)

    @property
    def is_number(self) -> bool:
        return self in {GroupBy.KEY, GroupBy.MEMBER}


type Value = str | int
type GroupKey = tuple[Value, ...]
type Cell = tuple[datetime, GroupKey]
"""The start of a bucket (in UTC), and the values of a group."""

MODEL_COLUMNS = (GroupBy.MODEL, GroupBy.ENDPOINT, GroupBy.SOURCE)
# What is taken away again may leave groups of which nothing is left.
_USED = " HAVING SUM(rows.requests) <> 0"
_BYTEWISE = {"postgresql": 'COLLATE "C"', "sqlite": ""}
_MOVED = {"postgresql": "{time} + interval '{hours} hours'", "sqlite": "datetime({time}, '{hours} hours')"}
# More stretches than these are looked up one by one: the planner takes longer over so many conditions than it reads.
_FEW_SPANS = 8
_WITHIN = "{time} >= since AND {time} < until"
_ONE_BY_ONE = {
    # What is not to be turned into a join the other way round has an OFFSET.
    "postgresql": "SELECT found.* FROM unnest(%s::timestamptz[], %s::timestamptz[]) spans (since, until)"
    " CROSS JOIN LATERAL ({rows} AND {within} OFFSET 0) found",
    "sqlite": "SELECT {columns} FROM (SELECT key AS since, value AS until FROM json_each(%s)) spans"
    " CROSS JOIN {table} WHERE {conditions} AND {within}",
}


class _Levels(NamedTuple):
    """None where no level of `Summary` tells enough apart: quarters are `Rollup` then, days `DayRollup`."""

    quarter: Level | None
    day: Level | None
    month: Level


_OF_ALL = _Levels(Level.TEAM_QUARTER, Level.TEAM_DAY, Level.MODEL_MONTH)
_OF_MODELS = _Levels(Level.MODEL_QUARTER, Level.MODEL_DAY, Level.MODEL_MONTH)
_OF_KEYS = _Levels(None, Level.KEY_DAY, Level.KEY_MONTH)
_OF_MEMBERS = _Levels(None, Level.MEMBER_DAY, Level.MEMBER_MONTH)
_OF_CELLS = _Levels(None, None, Level.CELL_MONTH)


def _levels(columns: Collection[GroupBy]) -> _Levels:
    asked = set(columns)
    if not asked:
        return _OF_ALL
    if asked.issubset(MODEL_COLUMNS):
        return _OF_MODELS
    if asked == {GroupBy.KEY}:
        return _OF_KEYS
    return _OF_MEMBERS if asked == {GroupBy.MEMBER} else _OF_CELLS


class _Source(NamedTuple):
    """Rows of one table within stretches of time."""

    table: str
    time: str
    spans: list[Span]
    level: Level | None = None
    is_less: bool = False
    moved_hours: int = 0

    @property
    def began_at(self) -> str:
        """A moment of the bucket that a row counts in."""
        moved = _MOVED[connection.vendor].format(time=self.time, hours=f"{self.moved_hours:+d}")
        return moved if self.moved_hours else self.time

    def rows(self, columns: Sequence[str], conditions: Sequence[str], given: Sequence[Any]) -> tuple[str, list[Any]]:
        """The statement that selects the rows, and its parameters."""
        statement = f"SELECT {', '.join(columns)} FROM {self.table} WHERE {' AND '.join(conditions)}"  # noqa: S608
        if len(self.spans) > _FEW_SPANS:
            one_by_one = _ONE_BY_ONE[connection.vendor].format(
                rows=statement, columns=", ".join(columns), table=self.table, conditions=" AND ".join(conditions),
                within=_WITHIN.format(time=self.time),
            )  # fmt: skip
            return one_by_one, [*_listed(self.spans), *given]
        moments = [connection.ops.adapt_datetimefield_value(moment) for span in self.spans for moment in span]
        within = " OR ".join(f"{self.time} >= %s AND {self.time} < %s" for _ in self.spans)
        return f"{statement} AND ({within})", [*given, *moments]


def _listed(spans: Sequence[Span]) -> list[str]:
    """The parameters of `_ONE_BY_ONE`: few long ones are sent sooner than many."""
    if connection.vendor == "postgresql":
        return [f"{{{','.join(moment.isoformat() for moment in side)}}}" for side in zip(*spans, strict=True)]
    adapt = connection.ops.adapt_datetimefield_value
    return [json.dumps({adapt(since): adapt(until) for since, until in spans})]


def _sources_of(parts: Pieces, levels: _Levels, known: Summed) -> Iterator[_Source]:
    summaries = Summary._meta.db_table
    if parts.months:
        yield _Source(summaries, "starts_at", parts.months, levels.month)
    for days, is_less in ((parts.days, False), (parts.less_days, True)):
        if days and levels.day is not None:
            yield _Source(summaries, "starts_at", days, levels.day, is_less)
        elif days:
            yield _Source(DayRollup._meta.db_table, "day_at", days, None, is_less)
    for stretches, is_less in ((parts.quarters, False), (parts.less_quarters, True)):
        inside, quarters = common(stretches, known.days) if levels.quarter is not None else ([], stretches)
        if inside:
            yield _Source(summaries, "starts_at", inside, levels.quarter, is_less)
        if quarters:
            yield _Source(Rollup._meta.db_table, "quarter_at", quarters, None, is_less)


class Ranking(NamedTuple):
    """Groups in their order, and how many there are in all."""

    sums: dict[GroupKey, Sums]
    total: int


@dataclass(frozen=True)
class Reading:
    """What is asked of a team's sums from `start` to `end`; cut into buckets where there is an `interval`.

    `filters` gives the value each column has to have, `only` the values that the one column grouped by may have.
    """

    team_id: int
    start: datetime
    end: datetime
    zone: ZoneInfo
    interval: Interval | None = None
    group_by: tuple[GroupBy, ...] = ()
    filters: Mapping[GroupBy, Value] = field(default_factory=dict)
    only: Collection[Value] | None = None

    def cells(self, known: Summed | None = None) -> dict[Cell, Sums]:
        """By bucket and group; without an interval all is one bucket. `known` saves asking what is summed."""
        return self._cells(known, COUNTED, sum_columns(), sums_of, having=_USED)

    def amounts(self, known: Summed | None = None) -> dict[Cell, int]:
        """The cells' picopoints, which are all that a chart draws; cells of nothing may be among them."""
        return self._cells(known, ("amount_ppt",), amount_columns(), amount_of)

    def _cells[T](
        self,
        known: Summed | None,
        counted: Sequence[str],
        columns: Sequence[str],
        read: Callable[[Sequence[Any]], T],
        *,
        having: str = "",
    ) -> dict[Cell, T]:
        rows, parameters = self._rows(known, counted)
        if not self.interval:
            found = _summed(self._columns, columns, read, rows, parameters, having=having)
            return {(self.start, group): sums for group, sums in found}
        parts = cut(self.start, self.end, interval=self.interval, zone=self.zone, time="began_at")
        numbered = f"SELECT {parts.expression} AS number, parts.* FROM ({rows}) parts"  # noqa: S608 -- the models' own names
        by = ["number", *self._columns]
        found = _summed(by, columns, read, numbered, [*parts.parameters, *parameters], having=having)
        # One start a bucket and one key a group: a chart of a year has thousands of cells.
        starts: dict[Value, datetime] = {}
        groups: dict[GroupKey, GroupKey] = {}
        cells: dict[Cell, T] = {}
        for numbered_key, sums in found:
            number, group = numbered_key[0], numbered_key[1:]
            if (start := starts.get(number)) is None:
                start = starts[number] = parts.bucket(int(number))
            cells[start, groups.setdefault(group, group)] = sums
        return cells

    def groups(self, known: Summed | None = None) -> dict[GroupKey, Sums]:
        return {group: sums for (_, group), sums in replace(self, interval=None).cells(known).items()}

    def ranking(self, known: Summed | None = None, *, limit: int | None = None) -> Ranking:
        """Groups of the whole period, most points first, then most tokens; the first `limit` of them."""
        rows, parameters = replace(self, interval=None)._rows(known)
        columns = self._columns
        ties = [f"{by.column} {'' if by.is_number else _BYTEWISE[connection.vendor]}" for by in self.group_by]
        summed = (
            f"SELECT {', '.join([*columns, *sum_columns()])} FROM ({rows}) rows"  # noqa: S608
            f" GROUP BY {', '.join(columns)}{_USED}"
        )
        statement = (
            f"SELECT summed.*, count(*) OVER () FROM ({summed}) summed ORDER BY {', '.join([*by_amount(), *ties])}"  # noqa: S608
        )
        if limit is not None:
            statement += f" LIMIT {limit:d}"
        width = len(columns)
        found = _fetched(statement, parameters)
        return Ranking({row[:width]: sums_of(row[width:-1]) for row in found}, found[0][-1] if found else 0)

    # -- the rows to be added up ------------------------------------------------------------------

    def _rows(self, known: Summed | None, counted: Sequence[str] = COUNTED) -> tuple[str, list[Any]]:
        statements: list[str] = []
        parameters: list[Any] = []
        for source in self._sources(known):
            columns = [f"{source.began_at} AS began_at"] if self.interval else []
            columns += [*self._columns, *(f"-{name} AS {name}" if source.is_less else name for name in counted)]
            statement, given = source.rows(columns, *self._conditions(source))
            statements.append(statement)
            parameters += given
        return " UNION ALL ".join(statements), parameters

    def _conditions(self, source: _Source) -> tuple[list[str], list[Any]]:
        conditions: list[str] = ["team_id = %s"]
        given: list[Any] = [self.team_id]
        if source.level is not None:
            conditions.append(f"level = {source.level.value}")
        for by, value in self.filters.items():
            conditions.append(f"{by.column} = %s")
            given.append(value)
        if self.only is not None:
            # Numbers stand in the statement itself: there may be hundreds, and a parameter takes its time.
            listed = [f"{value:d}" if isinstance(value, int) else "%s" for value in self.only]
            conditions.append(f"{self._columns[0]} IN ({', '.join(listed) or 'NULL'})")
            given += [value for value in self.only if not isinstance(value, int)]
        return conditions, given

    def _sources(self, known: Summed | None) -> Iterator[_Source]:
        known = Summed.within(self.team_id, self.start, self.end) if known is None else known
        levels = _levels({*self.group_by, *self.filters})
        for hours, parts in self._pieces(known).items():
            yield from (source._replace(moved_hours=hours) for source in _sources_of(parts, levels, known))

    def _pieces(self, known: Summed) -> dict[int, Pieces]:
        """By the hours that a moment of theirs is moved by to lie in its bucket."""
        if self.interval == Interval.HOUR:
            # No day lies in an hour.
            return {0: Pieces([], [], [(self.start, self.end)])}
        if self.interval is None:
            return {0: whole_pieces(self.start, self.end, known)}
        starts = buckets(self.start, self.end, interval=self.interval, zone=self.zone)
        # The first bucket may begin before the period.
        return cut_pieces((self.start, *starts[1:], self.end), known)

    @property
    def _columns(self) -> list[str]:
        return [by.column for by in self.group_by]


def _summed[T](
    by: Sequence[str],
    columns: Sequence[str],
    read: Callable[[Sequence[Any]], T],
    rows: str,
    parameters: list[Any],
    *,
    having: str,
) -> Iterator[tuple[GroupKey, T]]:
    grouped = f" GROUP BY {', '.join(by)}{having}" if by else ""
    statement = f"SELECT {', '.join([*by, *columns])} FROM ({rows}) rows{grouped}"  # noqa: S608
    width = len(by)
    # What adds up nothing at all adds up to NULL.
    return ((row[:width], read(row[width:])) for row in _fetched(statement, parameters) if row[width] is not None)


def _fetched(statement: str, parameters: list[Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
