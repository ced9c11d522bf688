"""Days and months of a team's zone, summed once more: reports of long periods read those.

The quarter hours stay the truth. A summed day is named by its two moments, so it serves every zone that has the same
days, and no other. What comes late to a day (a record of a process long dead, a correction) makes it stale:
reports read its quarter hours again, and the days of its month, until both are summed anew.

Of a busy day that goes on the hours so far are summed, and again as it grows; of a month its days so far.

A day is noted before it is summed, in a moment when nobody is adding to rollups. From then on whoever adds to it finds
the note and marks it; a sum that was read before that mark does not count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from django.db import DataError, OperationalError, connection, transaction
from django.db.models import Exists, Max, Min, OuterRef

from accounts.models import Team
from billing.buckets import epoch, following_month, midnight
from billing.cells import SUMMED_AFTER_SECONDS, SUMS
from billing.latency import sum_latencies
from billing.models import DayRollup, Rollup, SummedDay
from billing.rebuilding import hold_up_raters
from billing.report_models import LatencySpan, Level, Summary, SummedMonth

logger = logging.getLogger(__name__)
# A run gives way after so many days: beat and other tasks share its worker.
MAX_DAYS = 500
_WHO = ("key_id", "member_id", "model", "endpoint", "source")
_MODEL = ("model", "endpoint", "source")
QUARTER_LEVELS: dict[Level, tuple[str, ...]] = {Level.MODEL_QUARTER: _MODEL, Level.TEAM_QUARTER: ()}
DAY_LEVELS: dict[Level, tuple[str, ...]] = {
    Level.MODEL_DAY: _MODEL,
    Level.KEY_DAY: ("key_id",),
    Level.MEMBER_DAY: ("member_id",),
    Level.TEAM_DAY: (),
}
MONTH_LEVELS = {
    Level.MODEL_MONTH: _MODEL,
    Level.KEY_MONTH: ("key_id",),
    Level.MEMBER_MONTH: ("member_id",),
    Level.CELL_MONTH: _WHO,
}
_NOTHING = {"key_id": "0", "member_id": "0", "model": "''", "endpoint": "''", "source": "''"}
_DAY = timedelta(days=1)
# A month counts while all of its days do.
_FIT = {
    SummedDay: "",
    SummedMonth: f" AND NOT EXISTS (SELECT 1 FROM {SummedDay._meta.db_table} days WHERE days.team_id = spans.team_id"  # noqa: S608
    " AND days.is_stale AND days.starts_at >= spans.starts_at AND days.ends_at <= spans.ends_at)",
}
# A day that goes on is summed again when it has grown by so much, and by so many rows.
_PART_STEP = timedelta(hours=2)
_PART_ROWS = 1_000

type Span = tuple[datetime, datetime]
"""First moment and the one that is the next span's, in UTC."""


def summed_days(team_id: int, start: datetime, end: datetime) -> dict[datetime, datetime]:
    """The days that a period touches and that reports may take as they are summed: start → end."""
    return summed_spans(team_id, start, end, SummedDay)[0]


def summed_months(team_id: int, start: datetime, end: datetime) -> dict[datetime, datetime]:
    """The same of months."""
    return summed_spans(team_id, start, end, SummedMonth)[0]


def summed_spans(
    team_id: int, start: datetime, end: datetime, *kinds: type[SummedDay | SummedMonth]
) -> list[dict[datetime, datetime]]:
    """Of each kind asked for, ascending: one statement, as every report begins with it."""
    moments = [epoch(name) for name in ("starts_at", "ends_at")]
    statements = [
        f"SELECT {place} AS kind, {', '.join(moments)} FROM {kind._meta.db_table} spans"  # noqa: S608 -- the models' own names
        f" WHERE team_id = %s AND starts_at < %s AND ends_at > %s AND NOT is_stale{_FIT[kind]}"
        for place, kind in enumerate(kinds)
    ]
    adapt = connection.ops.adapt_datetimefield_value
    found: list[dict[datetime, datetime]] = [{} for _ in kinds]
    with connection.cursor() as cursor:
        given = [team_id, adapt(end), adapt(start)] * len(kinds)
        cursor.execute(f"{' UNION ALL '.join(statements)} ORDER BY 2", given)
        for place, starts, ends in cursor.fetchall():
            found[place][datetime.fromtimestamp(starts, UTC)] = datetime.fromtimestamp(ends, UTC)
    return found


def sum_days(*, now: datetime, limit: int = MAX_DAYS) -> int:
    """Sum what is over and not summed, up to `limit` days, and the months that are whole; returns how many days."""
    closed = now - timedelta(seconds=SUMMED_AFTER_SECONDS)
    count = 0
    for team in Team.objects.filter(Exists(Rollup.objects.filter(team_id=OuterRef("pk")))).order_by("pk"):
        try:
            count += _sum_team(team, closed, limit=limit - count)
        except (DataError, OperationalError):
            # A sum beyond 63 bits, a lock not had in time: the team's reports read its quarter hours meanwhile.
            logger.exception("Days of team %s could not be summed", team.pk)
        if count >= limit:
            break
    return count


def _sum_team(team: Team, closed: datetime, *, limit: int) -> int:
    zone = ZoneInfo(team.time_zone)
    _forget_other_days(team.pk, zone)
    # A part of a day that went stale and has grown since comes twice, the longer one later.
    days = list(dict(islice(_missing_days(team.pk, zone, closed), limit)).items())
    _note(SummedDay, team.pk, days)
    _pass_empty_days(team.pk, days)
    noted = SummedDay.objects.filter(team_id=team.pk, starts_at__in=[start for start, _ in days])
    for day in list(noted.filter(is_stale=True).order_by("starts_at")):
        _sum_day(team.pk, (day.starts_at, day.ends_at))
    months = list(_missing_months(team.pk, zone))
    _note(SummedMonth, team.pk, months)
    for month in months:
        _sum_month(team.pk, month)
    return len(days)


# -- which --------------------------------------------------------------------------------------


def _missing_days(team_id: int, zone: ZoneInfo, closed: datetime) -> Iterator[Span]:
    """Days that went stale, then those since the last one, oldest first, then what is closed of the present one."""
    known = SummedDay.objects.filter(team_id=team_id)
    yield from list(known.filter(is_stale=True).order_by("starts_at").values_list("starts_at", "ends_at"))
    latest = known.order_by("-starts_at").values_list("ends_at", flat=True).first()
    if latest:
        day = latest.astimezone(zone).date()
    else:
        first = Rollup.objects.filter(team_id=team_id).aggregate(first=Min("quarter_at"))["first"]
        # From the first of the month: a month is whole when all of its days are summed, empty ones too.
        day = first.astimezone(zone).date().replace(day=1)
    while (end := midnight(day + _DAY, zone)) <= closed:
        yield midnight(day, zone), end
        day += _DAY
    if part := _closed_part(team_id, midnight(day, zone), latest, closed):
        yield part


def _closed_part(team_id: int, start: datetime, latest: datetime | None, closed: datetime) -> Span | None:
    """A day from its beginning to the last whole hour, once there is something to be saved by it."""
    end = closed.replace(minute=0, second=0, microsecond=0)
    since = max(start, latest or start)
    if end - since < _PART_STEP:
        return None
    rows = Rollup.objects.filter(team_id=team_id, quarter_at__gte=since, quarter_at__lt=end)
    return (start, end) if rows[:_PART_ROWS].count() == _PART_ROWS else None


def _missing_months(team_id: int, zone: ZoneInfo) -> Iterator[Span]:
    """Months that are not summed, or stale, and whose days all count; the last one as far as there are whole days."""
    days = SummedDay.objects.filter(team_id=team_id)
    edges = days.aggregate(first=Min("starts_at"), last=Max("ends_at"))
    first, last = edges["first"], edges["last"]
    if not first or not last:
        return
    last = midnight(last.astimezone(zone).date(), zone)
    unfit = {_month_of(at, zone) for at in days.filter(is_stale=True).values_list("starts_at", flat=True)}
    there = summed_months(team_id, first, last)
    month = _month_of(first, zone)
    while (start := midnight(month, zone)) < last:
        end = min(midnight(following_month(month), zone), last)
        if month not in unfit and there.get(start) != end:
            yield start, end
        month = following_month(month)


def _month_of(at: datetime, zone: ZoneInfo) -> date:
    return at.astimezone(zone).date().replace(day=1)


@transaction.atomic
def _forget_other_days(team_id: int, zone: ZoneInfo) -> None:
    """After a team has moved its days are other ones; two kinds of them must not lie side by side."""
    latest = (
        SummedDay.objects.filter(team_id=team_id).order_by("-starts_at").values_list("starts_at", "ends_at").first()
    )
    if latest is None or _is_day(latest, zone):
        return
    for model in (SummedDay, SummedMonth, DayRollup, Summary):
        model.objects.filter(team_id=team_id).delete()


def _is_day(day: Span, zone: ZoneInfo) -> bool:
    """A day of the zone, or its part up to some hour."""
    local = day[0].astimezone(zone).date()
    return day[0] == midnight(local, zone) and day[1] <= midnight(local + _DAY, zone)


@transaction.atomic
def _note[M: (SummedDay, SummedMonth)](model: type[M], team_id: int, spans: Sequence[Span]) -> None:
    """As stale ones, while nobody has rollups on the way: later additions find them."""
    if spans:
        hold_up_raters()
        noted = [model(team_id=team_id, starts_at=start, ends_at=end, is_stale=True) for start, end in spans]
        model._default_manager.bulk_create(
            noted,
            update_conflicts=True,
            unique_fields=["team_id", "starts_at"],
            update_fields=["ends_at", "is_stale"],
        )


# -- summing ------------------------------------------------------------------------------------


@transaction.atomic
def _pass_empty_days(team_id: int, days: Sequence[Span]) -> None:
    """Days of which there is nothing, neither in the rollups nor summed before: all at once."""
    noted = SummedDay.objects.filter(team_id=team_id, starts_at__in=[start for start, _ in days])
    list(noted.select_for_update().order_by("starts_at"))
    of_team = {"team_id": team_id}
    used = Rollup.objects.filter(quarter_at__gte=OuterRef("starts_at"), quarter_at__lt=OuterRef("ends_at"), **of_team)
    summed = DayRollup.objects.filter(day_at=OuterRef("starts_at"), **of_team)
    empty = noted.exclude(Exists(used)).exclude(Exists(summed)).values_list("pk", flat=True)
    SummedDay.objects.filter(pk__in=list(empty)).update(is_stale=False)


@transaction.atomic
def _sum_day(team_id: int, day: Span) -> None:
    noted = SummedDay.objects.select_for_update().get(team_id=team_id, starts_at=day[0])
    DayRollup.objects.filter(team_id=team_id, day_at=day[0]).delete()
    levels = (*QUARTER_LEVELS, *DAY_LEVELS)
    Summary.objects.filter(team_id=team_id, level__in=levels, starts_at__gte=day[0], starts_at__lt=day[1]).delete()
    if Rollup.objects.filter(team_id=team_id, quarter_at__gte=day[0], quarter_at__lt=day[1]).exists():
        rollups = _Rows(Rollup._meta.db_table, "quarter_at", team_id, day)
        cells = _Rows(DayRollup._meta.db_table, "day_at", team_id, day)
        rollups.add_days()
        for level, columns in QUARTER_LEVELS.items():
            rollups.add(level, columns, starts_at="quarter_at")
        for level, columns in DAY_LEVELS.items():
            cells.add(level, columns)
    sum_latencies(team_id, *day, span=LatencySpan.DAY)
    SummedMonth.objects.filter(team_id=team_id, starts_at__lte=day[0], ends_at__gte=day[1]).update(is_stale=True)
    noted.is_stale = False
    noted.save(update_fields=["is_stale"])


@transaction.atomic
def _sum_month(team_id: int, month: Span) -> None:
    noted = SummedMonth.objects.select_for_update().get(team_id=team_id, starts_at=month[0])
    days = SummedDay.objects.filter(team_id=team_id, starts_at__gte=month[0], ends_at__lte=month[1])
    if days.filter(is_stale=True).exists():
        return
    Summary.objects.filter(team_id=team_id, level__in=MONTH_LEVELS, starts_at=month[0]).delete()
    table = Summary._meta.db_table
    for days_level, level in (
        (Level.MODEL_DAY, Level.MODEL_MONTH),
        (Level.KEY_DAY, Level.KEY_MONTH),
        (Level.MEMBER_DAY, Level.MEMBER_MONTH),
    ):
        _Rows(table, "starts_at", team_id, month, level=days_level).add(level, MONTH_LEVELS[level])
    _Rows(DayRollup._meta.db_table, "day_at", team_id, month).add(Level.CELL_MONTH, MONTH_LEVELS[Level.CELL_MONTH])
    sum_latencies(team_id, *month, span=LatencySpan.MONTH)
    noted.is_stale = False
    noted.save(update_fields=["is_stale"])


class _Rows:
    """A team's rows of one table within a span, to be added up into coarser ones by one statement each."""

    def __init__(self, table: str, time: str, team_id: int, span: Span, *, level: Level | None = None) -> None:
        self._starts_at, ends_at = (connection.ops.adapt_datetimefield_value(moment) for moment in span)
        self._from = f"FROM {table} WHERE team_id = %s AND {time} >= %s AND {time} < %s"
        self._of: list[Any] = [team_id, self._starts_at, ends_at]
        if level is not None:
            self._from += " AND level = %s"
            self._of.append(int(level))

    def add_days(self) -> None:
        who = ", ".join(("team_id", *_WHO))
        self._insert(f"{DayRollup._meta.db_table} (day_at, {who}", f"%s, {who}", [self._starts_at], by=who)

    def add(self, level: Level, columns: tuple[str, ...], *, starts_at: str = "") -> None:
        """`starts_at` names the column whose times the new rows keep; else all of them begin as the span does."""
        values = [name if name in columns else _NOTHING[name] for name in _WHO]
        by = ", ".join(("team_id", *columns, *([starts_at] if starts_at else [])))
        chosen = f"%s, {starts_at or '%s'}, team_id, {', '.join(values)}"
        given = [int(level)] if starts_at else [int(level), self._starts_at]
        self._insert(f"{Summary._meta.db_table} (level, starts_at, team_id, {', '.join(_WHO)}", chosen, given, by=by)

    def _insert(self, into: str, chosen: str, given: list[Any], *, by: str) -> None:
        sums = ", ".join(f"SUM({name})" for name in SUMS)
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {into}, {', '.join(SUMS)}) SELECT {chosen}, {sums} {self._from} GROUP BY {by}",
                [*given, *self._of],
            )
