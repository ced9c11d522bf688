"""How long answers took: counts by steps of a scale, from which percentiles are read without looking at a request.

A step is a quarter of a doubling (about 19 %) beginning at a millisecond, so what is read is right to about a tenth.
Counted are answers of 2xx by model, endpoint and source: the whole time of those that ended well, and the time to the
first token of those that were streamed. Keys and members are not told apart: how long an answer takes is the model's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from string import Template
from typing import Any, NamedTuple, Self

from django.db import connection
from django.db.models import QuerySet

from billing.cells import QUARTER_SECONDS
from billing.models import Outcome, UsageRecord
from billing.report_models import LatencyCount, LatencySpan

STEPS_A_DOUBLING = 4
LAST_STEP = 90
"""Where everything longer than an hour and a half is counted."""
PERCENTILES = (50, 95, 99)
_WHAT = ("model", "endpoint", "source")
_TABLE = LatencyCount._meta.db_table
_RECORDS = UsageRecord._meta.db_table


# -- counting -----------------------------------------------------------------------------------

# How each database says "the number of a record's quarter hour", "that quarter as a time", "in the order of bytes".
QUARTER_WORDS = {
    "postgresql": {
        "quarter": f"floor(extract(epoch FROM started_at) / {QUARTER_SECONDS})::bigint",
        "quarter_at": f"to_timestamp(quarter * {QUARTER_SECONDS})",
        "bytewise": 'COLLATE "C"',
    },
    "sqlite": {
        # The fraction is cut off: SQLite would round 59.9999 s up to the next minute.
        "quarter": f"CAST(strftime('%%s', substr(started_at, 1, 19)) AS INTEGER) / {QUARTER_SECONDS}",
        "quarter_at": f"strftime('%%Y-%%m-%%d %%H:%%M:%%S', quarter * {QUARTER_SECONDS}, 'unixepoch')",
        "bytewise": "",
    },
}
# A statement of rating (`billing.rating_statements`), over records with their steps. Rows in the order of the unique
# key: writers of the same rows wait for each other instead of deadlocking.
ADD_LATENCIES = f"""
INSERT INTO {_TABLE} (team_id, span, starts_at, model, endpoint, source, step, first_tokens, answers)
SELECT team_id, {LatencySpan.QUARTER.value}, $quarter_at, model, endpoint, source, step, sum(first_tokens), sum(answers)
FROM (
    SELECT team_id, quarter, model, endpoint, source, first_token_step AS step, 1 AS first_tokens, 0 AS answers
    FROM rated WHERE first_token_step IS NOT NULL
    UNION ALL SELECT team_id, quarter, model, endpoint, source, answer_step, 0, 1
    FROM rated WHERE answer_step IS NOT NULL
) AS taken
WHERE true GROUP BY team_id, quarter, model, endpoint, source, step
ORDER BY team_id, quarter, model $bytewise, endpoint $bytewise, source $bytewise, step
ON CONFLICT (team_id, span, starts_at, model, endpoint, source, step) DO UPDATE SET
    first_tokens = {_TABLE}.first_tokens + excluded.first_tokens, answers = {_TABLE}.answers + excluded.answers
"""  # noqa: S608 -- the model's own table


def latency_steps(vendor: str) -> str:
    """A record's two columns: the step of its first token and that of its whole answer, NULL where it has none."""
    first, whole = (_STEP[vendor].format(end=end) for end in ("first_byte_at", "finished_at"))
    is_answered = "status BETWEEN 200 AND 299"
    return (
        f"CASE WHEN {is_answered} AND stream AND first_byte_at IS NOT NULL THEN {first} END AS first_token_step,"
        f" CASE WHEN {is_answered} AND outcome = '{Outcome.OK.value}' THEN {whole} END AS answer_step"
    )


# The number of a duration's step, each value worked out once. A float may miss a whole step by a little, hence the
# last addend. SQLite knows times as text, and rounds them to milliseconds here.
_STEPS_A_NEPER = STEPS_A_DOUBLING / math.log(2)
_STEP = {
    "postgresql": (
        "least(floor(ln(greatest(extract(epoch FROM {end} - started_at)::float8 * 1000, 1))"
        f" * {_STEPS_A_NEPER} + 1e-9), {LAST_STEP})::integer"
    ),
    "sqlite": (
        "CAST(min(floor(ln(max((julianday({end}) - julianday(started_at)) * 86400000.0, 1.0))"
        f" * {_STEPS_A_NEPER} + 1e-9), {LAST_STEP}) AS integer)"
    ),
}


def recount_latencies(team_id: int, start: datetime, end: datetime) -> bool:
    """Write a stretch of whole quarter hours anew, out of the records that are rated; True if it was another before."""
    quarters = LatencyCount.objects.filter(
        team_id=team_id, span=LatencySpan.QUARTER, starts_at__gte=start, starts_at__lt=end
    )
    before = _counts(quarters)
    quarters.delete()
    words = QUARTER_WORDS[connection.vendor]
    rated = (
        f"WITH rated AS (SELECT team_id, model, endpoint, source, {words['quarter']} AS quarter,"  # noqa: S608 -- the models' own names
        f" {latency_steps(connection.vendor)} FROM {_RECORDS}"
        " WHERE team_id = %s AND started_at >= %s AND started_at < %s AND rated_at IS NOT NULL)"
    )
    moments = [connection.ops.adapt_datetimefield_value(moment) for moment in (start, end)]
    with connection.cursor() as cursor:
        cursor.execute(rated + Template(ADD_LATENCIES).substitute(words), [team_id, *moments])
    return before != _counts(quarters)


def _counts(rows: QuerySet[LatencyCount]) -> set[tuple[Any, ...]]:
    return set(rows.values_list("starts_at", *_WHAT, "step", "first_tokens", "answers"))


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

type Stretches = Mapping[LatencySpan, Sequence[tuple[datetime, datetime]]]


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
    team_id: int, spans: Stretches, less: Stretches | None = None, *, by: str, named: Mapping[str, Any]
) -> list[tuple[str, int, int, int]]:
    """Counts of the stretches by one column and step, each read from days, months or quarter hours as it is said."""
    signed = [("", *one) for one in spans.items()] + [("-", *one) for one in (less or {}).items()]
    conditions = "".join(f" AND {name} = %s" for name in named)
    statements: list[str] = []
    parameters: list[Any] = []
    for sign, span, stretches in signed:
        if stretches:
            within = " OR ".join("starts_at >= %s AND starts_at < %s" for _ in stretches)
            counted = f"{sign}first_tokens AS first_tokens, {sign}answers AS answers"
            statements.append(
                f"SELECT {by} AS of_group, step, {counted} FROM {_TABLE}"  # noqa: S608 -- the model's own names
                f" WHERE team_id = %s AND span = {span.value}{conditions} AND ({within})"
            )
            moments = (moment for stretch in stretches for moment in stretch)
            parameters += [team_id, *named.values(), *map(connection.ops.adapt_datetimefield_value, moments)]
    if not statements:
        return []
    union = " UNION ALL ".join(statements)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT of_group, step, SUM(first_tokens), SUM(answers) FROM ({union}) counts GROUP BY of_group, step"  # noqa: S608
            " HAVING SUM(counts.first_tokens) <> 0 OR SUM(counts.answers) <> 0",
            parameters,
        )
        return [(group, step, int(first), int(whole)) for group, step, first, whole in cursor.fetchall()]
