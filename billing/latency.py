"""How long answers took: counts by steps of a scale, from which percentiles are read without looking at a request.

A step is a quarter of a doubling (about 19 %) beginning at a millisecond, so what is read is right to about a tenth.
Counted are answers of 2xx by model, endpoint and source: the whole time of those that ended well, and the time to the
first token of those that were streamed. Keys and members are not told apart: how long an answer takes is the model's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Self
from uuid import UUID

import orjson
from django.db import connection
from django.db.models import F, Q, QuerySet, Sum

from billing.models import Outcome, UsageRecord
from billing.report_models import LatencyCount, LatencySpan

STEPS_A_DOUBLING = 4
LAST_STEP = 90
"""Where everything longer than an hour and a half is counted."""
PERCENTILES = (50, 95, 99)
_WHAT = ("model", "endpoint", "source")
_TABLE = LatencyCount._meta.db_table
_RECORDS = UsageRecord._meta.db_table
_ADD = (
    "ON CONFLICT (team_id, span, starts_at, model, endpoint, source, step) DO UPDATE SET "
    f"first_tokens = {_TABLE}.first_tokens + excluded.first_tokens, answers = {_TABLE}.answers + excluded.answers"
)


# -- counting -----------------------------------------------------------------------------------


def count_latencies(record_ids: Sequence[UUID]) -> None:
    """Add records to their quarter hours; belongs into the transaction that rates them, which comes but once."""
    if not record_ids:
        return
    if connection.vendor == "sqlite":
        chosen: str = "id IN (SELECT value FROM json_each(%s))"
        _count(chosen, [orjson.dumps([id.hex for id in record_ids]).decode()])
    else:
        _count("id = ANY(%s)", [list(record_ids)])


def recount_latencies(team_id: int, start: datetime, end: datetime) -> None:
    """Write a stretch of whole quarter hours anew, out of the records that are rated."""
    LatencyCount.objects.filter(
        team_id=team_id, span=LatencySpan.QUARTER, starts_at__gte=start, starts_at__lt=end
    ).delete()
    moments = [connection.ops.adapt_datetimefield_value(moment) for moment in (start, end)]
    _count("team_id = %s AND started_at >= %s AND started_at < %s AND rated_at IS NOT NULL", [team_id, *moments])


def _count(chosen: str, parameters: list[Any]) -> None:
    """One statement: the database takes the times apart, adds up and adds. Sorted, as rollups are: nobody deadlocks."""
    sql = _SQLITE if connection.vendor == "sqlite" else _POSTGRESQL
    first, whole = (_step(sql.seconds.format(end=end)) for end in ("first_byte_at", "finished_at"))
    is_answered = f"{chosen} AND status BETWEEN 200 AND 299"
    ended = f"outcome = '{Outcome.OK.value}'"
    columns = f"team_id, {sql.quarter} AS quarter, {', '.join(_WHAT)}"
    rows = (
        f"SELECT {columns}, {first} AS step, 1 AS first_tokens, 0 AS answers FROM {_RECORDS}"  # noqa: S608 -- the models' own names
        f" WHERE {is_answered} AND stream AND first_byte_at IS NOT NULL"
        f" UNION ALL SELECT {columns}, {whole}, 0, 1 FROM {_RECORDS} WHERE {is_answered} AND {ended}"
    )
    by = f"team_id, quarter, {', '.join(_WHAT)}, step"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {_TABLE} (team_id, span, starts_at, {', '.join(_WHAT)}, step, first_tokens, answers)"  # noqa: S608
            f" SELECT team_id, {LatencySpan.QUARTER.value}, quarter, {', '.join(_WHAT)}, step,"
            f" SUM(first_tokens), SUM(answers) FROM ({rows}) taken WHERE true GROUP BY {by} ORDER BY {by} {_ADD}",
            parameters * 2,
        )


class _Sql(NamedTuple):
    seconds: str
    quarter: str


_POSTGRESQL = _Sql(
    "EXTRACT(EPOCH FROM {end} - started_at)::float8",
    "date_bin('15 minutes', started_at, TIMESTAMPTZ '2000-01-01 00:00:00+00')",
)
# SQLite knows times as text. Its own functions round to milliseconds, which is good enough for a duration; the
# quarter is cut off after the seconds, so that 59.9999 s is not the next minute.
_SQLITE = _Sql(
    "(julianday({end}) - julianday(started_at)) * 86400.0",
    "strftime('%%Y-%%m-%%d %%H:%%M:%%S', strftime('%%s', substr(started_at, 1, 19)) / 900 * 900, 'unixepoch')",
)


def _step(seconds: str) -> str:
    """The number of a duration's step: 0 up to a millisecond."""
    doublings = f"LN({_at_least('1.0', f'({seconds}) * 1000.0')}) / LN(2.0)"
    return f"CAST({_at_most(str(LAST_STEP), f'FLOOR({doublings} * {STEPS_A_DOUBLING} + 1e-9)')} AS integer)"


def _at_least(floor: str, value: str) -> str:
    return f"CASE WHEN {value} > {floor} THEN {value} ELSE {floor} END"


def _at_most(ceiling: str, value: str) -> str:
    return f"CASE WHEN {value} < {ceiling} THEN {value} ELSE {ceiling} END"


def sum_latencies(team_id: int, start: datetime, end: datetime, *, span: LatencySpan) -> None:
    """Add the quarters of a day up to the day, or the days of a month to the month."""
    parts = LatencySpan.QUARTER if span == LatencySpan.DAY else LatencySpan.DAY
    LatencyCount.objects.filter(team_id=team_id, span=span, starts_at=start).delete()
    starts_at, ends_at = (connection.ops.adapt_datetimefield_value(moment) for moment in (start, end))
    columns = f"{', '.join(_WHAT)}, step"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {_TABLE} (team_id, span, starts_at, {columns}, first_tokens, answers)"  # noqa: S608 -- the model's own names
            f" SELECT team_id, {span.value}, %s, {columns}, SUM(first_tokens), SUM(answers) FROM {_TABLE}"
            f" WHERE team_id = %s AND span = {parts.value} AND starts_at >= %s AND starts_at < %s"
            f" GROUP BY team_id, {columns}",
            [starts_at, team_id, starts_at, ends_at],
        )


# -- reading ------------------------------------------------------------------------------------


class Percentiles(NamedTuple):
    """Seconds that so many per cent took at most, in the order of `PERCENTILES`; None where nothing was counted."""

    answers: int
    seconds: tuple[float, ...] | None

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> Self:
        total = sum(counts.values())
        return cls(total, tuple(_percentile(counts, total, share) for share in PERCENTILES) if total else None)


class Latency(NamedTuple):
    first_token: Percentiles
    answer: Percentiles


def _percentile(counts: Mapping[int, int], total: int, share: int) -> float:
    """Within a step, as if its answers were spread over it evenly on the scale."""
    rank, below = total * share / 100, 0
    for step in sorted(counts):
        if below + counts[step] >= rank:
            within = (rank - below) / counts[step]
            return float(0.001 * 2 ** ((step + within) / STEPS_A_DOUBLING))
        below += counts[step]
    raise AssertionError("the counts are their total")


def latencies(rows: Iterable[tuple[str, int, int, int]]) -> dict[str, Latency]:
    """Rows are group, step, first tokens, answers."""
    first: dict[str, dict[int, int]] = {}
    whole: dict[str, dict[int, int]] = {}
    for group, step, first_tokens, answers in rows:
        for counts, count in ((first, first_tokens), (whole, answers)):
            of_group = counts.setdefault(group, {})
            of_group[step] = of_group.get(step, 0) + count
    return {group: Latency(Percentiles.of(first[group]), Percentiles.of(whole[group])) for group in first}


def latency_rows(
    team_id: int, spans: Mapping[LatencySpan, Sequence[tuple[datetime, datetime]]], *, by: str, named: Mapping[str, Any]
) -> Iterable[tuple[str, int, int, int]]:
    """Counts of the stretches, each read from days, months or quarter hours as it is said, by one column."""
    for span, stretches in spans.items():
        if stretches:
            within = Q()
            for start, end in stretches:
                within |= Q(starts_at__gte=start, starts_at__lt=end)
            rows: QuerySet[Any] = LatencyCount.objects.filter(within, team_id=team_id, span=span, **named).order_by()
            yield from (
                rows.values(by, "step")
                .annotate(n=Sum("first_tokens"), m=Sum("answers"))
                .values_list(F(by), "step", "n", "m")
            )
