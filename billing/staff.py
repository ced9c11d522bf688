"""What all teams used, for the installation's staff: read from the sums of every team at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Self

import orjson
from django.db import connection

from accounts.models import ApiKey, Team
from billing.day_sums import Span
from billing.models import Reconciliation, Rollup, SetAside, Source, SummedDay, UsageRecord
from billing.pieces import Summed, pieces
from billing.rates import RateCard
from billing.report_models import Level, Summary
from billing.snapshots import one_moment
from billing.sums import COUNTED, Sums, by_amount, sum_columns, sums_of

TOP_KEYS = 20
MOST_WAITING = 10_000


class TeamLine(NamedTuple):
    team_id: int
    name: str
    sums: Sums


class KeyLine(NamedTuple):
    team: str
    name: str
    sums: Sums


class ModelLine(NamedTuple):
    model: str
    sums: Sums


class Backlog(NamedTuple):
    """`waiting` is counted up to `MOST_WAITING` and one more."""

    waiting: int
    oldest: datetime | None
    set_aside: int
    reconciled: Reconciliation | None

    @classmethod
    def now(cls) -> Self:
        waiting = UsageRecord.objects.filter(rated_at=None)
        return cls(
            waiting[: MOST_WAITING + 1].count(),
            waiting.order_by("started_at").values_list("started_at", flat=True).first(),
            SetAside.objects.count(),
            Reconciliation.objects.order_by("-created_at").first(),
        )


@dataclass(frozen=True)
class AllTeams:
    total: Sums
    teams: Sequence[TeamLine]
    keys: Sequence[KeyLine]
    unpriced: Sequence[ModelLine]
    backlog: Backlog

    @classmethod
    def of(cls, start: datetime, end: datetime, *, now: datetime) -> Self:
        """Raises TookTooLong."""
        with one_moment():
            spans = _Spans.within(start, end)
            by_team = spans.read(Level.MODEL_DAY, "team_id")
            by_key = spans.read(Level.KEY_DAY, "team_id, key_id", where="key_id <> 0", limit=TOP_KEYS)
            by_model = spans.read(Level.MODEL_DAY, "model", where=f"source <> '{Source.DEDICATED.value}'")
            teams = dict(Team.objects.values_list("pk", "name"))
            keys = ApiKey.objects.in_bulk([key for (_, key) in by_key])
            card = RateCard.load()
            return cls(
                total=Sums.of((Sums(), *by_team.values())),
                teams=[TeamLine(team, teams.get(team, str(team)), sums) for (team,), sums in by_team.items()],
                keys=[
                    KeyLine(teams.get(team, str(team)), _name_of(key, keys), sums)
                    for (team, key), sums in by_key.items()
                ],
                unpriced=[
                    ModelLine(model, sums)
                    for (model,), sums in by_model.items()
                    if sums.requests > sums.errors and not card.prices(model, now)
                ],
                backlog=Backlog.now(),
            )


def _name_of(key_id: int, keys: dict[int, ApiKey]) -> str:
    key = keys.get(key_id)
    return f"{key.name} ({key.hint})" if key else str(key_id)


@dataclass(frozen=True)
class _Spans:
    """Where each team's sums of a period are to be found: its summed days, and the quarter hours beside them."""

    days: Sequence[tuple[int, Span]]
    quarters: Sequence[tuple[int, Span]]

    @classmethod
    def within(cls, start: datetime, end: datetime) -> Self:
        known: defaultdict[int, dict[datetime, datetime]] = defaultdict(dict)
        summed = SummedDay.objects.filter(starts_at__gte=start, ends_at__lte=end, is_stale=False)
        for team_id, starts_at, ends_at in summed.order_by("starts_at").values_list("team_id", "starts_at", "ends_at"):
            known[team_id][starts_at] = ends_at
        days: list[tuple[int, Span]] = []
        quarters: list[tuple[int, Span]] = []
        for team_id in Team.objects.order_by("pk").values_list("pk", flat=True):
            found = pieces((start, end), Summed({}, known[team_id]))
            days += ((team_id, span) for span in found.days)
            quarters += ((team_id, span) for span in found.quarters)
        return cls(days, quarters)

    def read(
        self, level: Level, by: str, *, where: str = "true", limit: int | None = None
    ) -> dict[tuple[Any, ...], Sums]:
        """Sums by columns, the most points first. The spans are one parameter, through which indexes are looked up."""
        columns = ("team_id", "key_id", "model", "source", *COUNTED)
        summaries, rollups = Summary._meta.db_table, Rollup._meta.db_table
        stretch = _STRETCHES[connection.vendor]
        rows = (
            f"SELECT {_of('s', columns)} FROM ({stretch}) stretch JOIN {summaries} s ON s.team_id = stretch.team"  # noqa: S608 -- the models' own names
            f" AND s.level = {level.value} AND s.starts_at >= stretch.first AND s.starts_at < stretch.last"
            f" UNION ALL SELECT {_of('r', columns)} FROM ({stretch}) stretch JOIN {rollups} r"
            " ON r.team_id = stretch.team AND r.quarter_at >= stretch.first AND r.quarter_at < stretch.last"
        )
        summed = f"SELECT {by}, {', '.join(sum_columns())} FROM ({rows}) parts WHERE {where} GROUP BY {by}"  # noqa: S608
        statement = f"SELECT * FROM ({summed}) summed ORDER BY {', '.join([*by_amount(), by])}"  # noqa: S608
        if limit is not None:
            statement += f" LIMIT {limit:d}"
        width = by.count(",") + 1
        with connection.cursor() as cursor:
            cursor.execute(statement, [_json(self.days), _json(self.quarters)])
            return {row[:width]: sums_of(row[width:]) for row in cursor.fetchall()}


_STRETCHES = {
    "postgresql": "SELECT * FROM json_to_recordset(%s::json) AS j(team bigint, first timestamptz, last timestamptz)",
    "sqlite": (
        "SELECT json_extract(value, '$.team') AS team, json_extract(value, '$.first') AS first,"
        " json_extract(value, '$.last') AS last FROM json_each(%s)"
    ),
}


def _of(table: str, columns: Iterable[str]) -> str:
    return ", ".join(f"{table}.{name}" for name in columns)


def _json(spans: Iterable[tuple[int, Span]]) -> str:
    adapt = connection.ops.adapt_datetimefield_value
    rows = [{"team": team_id, "first": str(adapt(first)), "last": str(adapt(last))} for team_id, (first, last) in spans]
    return orjson.dumps(rows).decode()
