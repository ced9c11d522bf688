"""Whole days of a team's zone, summed once more from the quarter hours: a report of months then reads days.

The quarter hours stay the truth. A summed day is named by its two moments, so it serves every zone that has the same
days, and no other. What comes late to a day (a record of a process long dead, a correction) makes it stale, and
reports read its quarter hours again until it is summed anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import connection, transaction
from django.db.models import Exists, Min, OuterRef

from accounts.models import Team
from billing.buckets import midnight
from billing.cells import SUMMED_AFTER_SECONDS, SUMS
from billing.models import DayRollup, Rollup, SummedDay
from billing.rebuilding import hold_up_raters

# A run gives way after so many days: beat and other tasks share its worker.
MAX_DAYS = 500
_WHO = ("team_id", "key_id", "member_id", "model", "endpoint", "source")
_DAY = timedelta(days=1)

type Day = tuple[datetime, datetime]
"""First moment and the next day's, in UTC."""


def summed_days(team_id: int, start: datetime, end: datetime) -> dict[datetime, datetime]:
    """The days within a period that reports may take from `DayRollup`: start → end."""
    days = SummedDay.objects.filter(team_id=team_id, starts_at__gte=start, ends_at__lte=end, is_stale=False)
    return dict(days.values_list("starts_at", "ends_at"))


def sum_days(*, now: datetime, limit: int = MAX_DAYS) -> int:
    """Sum what is over and not summed, up to `limit` days; returns how many."""
    closed = now - timedelta(seconds=SUMMED_AFTER_SECONDS)
    count = 0
    for team in Team.objects.filter(Exists(Rollup.objects.filter(team_id=OuterRef("pk")))).order_by("pk"):
        for day in _missing(team, closed):
            if count >= limit:
                return count
            _sum(team.pk, day)
            count += 1
    return count


def _missing(team: Team, closed: datetime) -> Iterator[Day]:
    """Days that went stale, then those since the last one, oldest first."""
    known = SummedDay.objects.filter(team_id=team.pk)
    yield from list(known.filter(is_stale=True).order_by("starts_at").values_list("starts_at", "ends_at"))
    zone = ZoneInfo(team.time_zone)
    latest = known.order_by("-starts_at").values_list("starts_at", "ends_at").first()
    if latest and _is_day(latest, zone):
        day = latest[1].astimezone(zone).date()
    else:
        # None yet, or the team has moved: its days are other ones now.
        first = Rollup.objects.filter(team_id=team.pk).aggregate(first=Min("quarter_at"))["first"]
        day = first.astimezone(zone).date()
    while (end := midnight(day + _DAY, zone)) <= closed:
        yield midnight(day, zone), end
        day += _DAY


def _is_day(day: Day, zone: ZoneInfo) -> bool:
    local = day[0].astimezone(zone).date()
    return day == (midnight(local, zone), midnight(local + _DAY, zone))


@transaction.atomic
def _sum(team_id: int, day: Day) -> None:
    """Nobody adds to a rollup meanwhile; who does so later finds the day and marks it stale."""
    hold_up_raters()
    starts_at, ends_at = (connection.ops.adapt_datetimefield_value(moment) for moment in day)
    who, sums = ", ".join(_WHO), ", ".join(f"SUM({name})" for name in SUMS)
    DayRollup.objects.filter(team_id=team_id, day_at=day[0]).delete()
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {DayRollup._meta.db_table} (day_at, {who}, {', '.join(SUMS)})"  # noqa: S608 -- the model's own names
            f" SELECT %s, {who}, {sums} FROM {Rollup._meta.db_table}"
            f" WHERE team_id = %s AND quarter_at >= %s AND quarter_at < %s GROUP BY {who}",
            [starts_at, team_id, starts_at, ends_at],
        )
    SummedDay.objects.update_or_create(
        team_id=team_id, starts_at=day[0], defaults={"ends_at": day[1], "is_stale": False}
    )
