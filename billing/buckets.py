"""Days, hours and months of any time zone, out of quarter hours in UTC.

Every offset in use since 1972 is a multiple of 15 minutes, so a local hour or day is a whole number of quarters,
those of 23 and 25 hours as well. The zone's rules are Python's, never the database's: both databases give the
same buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection, models
from django.utils.translation import gettext_lazy as _

QUARTER = timedelta(minutes=15)
# No zone changes its clock twice within this time.
_STEP = timedelta(days=1)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class Interval(models.TextChoices):
    HOUR = "hour", _("Hour")
    DAY = "day", _("Day")
    MONTH = "month", _("Month")


class Stretch(NamedTuple):
    """A stretch of time with one offset from UTC."""

    starts_at: datetime
    offset_seconds: int


@lru_cache(maxsize=4_096)
def midnight(day: date, zone: ZoneInfo) -> datetime:
    """When a day begins there, in UTC; where that hour is skipped, the moment of the change."""
    return datetime.combine(day, time(), zone).astimezone(UTC)


def floor_quarter(at: datetime) -> datetime:
    at = at.astimezone(UTC)
    return at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)


@lru_cache(maxsize=64)
def stretches(start: datetime, end: datetime, zone: ZoneInfo) -> tuple[Stretch, ...]:
    """The period cut where the zone's clock changes."""
    found = [Stretch(start, _offset(start, zone))]
    at = start
    while at < end:
        following = min(at + _STEP, end)
        if _offset(following, zone) != found[-1].offset_seconds:
            found.append(_change_between(at, following, zone))
        at = following
    return tuple(found)


def _change_between(before: datetime, after: datetime, zone: ZoneInfo) -> Stretch:
    """The first quarter with the new offset, by halving."""
    old = _offset(before, zone)
    while after - before > QUARTER:
        middle = before + QUARTER * ((after - before) // QUARTER // 2)
        before, after = (middle, after) if _offset(middle, zone) == old else (before, middle)
    return Stretch(after, _offset(after, zone))


def _offset(at: datetime, zone: ZoneInfo) -> int:
    offset = at.astimezone(zone).utcoffset()
    return int(offset.total_seconds()) if offset else 0


# -- in the database ----------------------------------------------------------------------------

_EPOCH = {
    # Not EXTRACT, whose numbers are numeric.
    "postgresql": "CAST(date_part('epoch', {time}) AS bigint)",
    "sqlite": "CAST(strftime('%%s', {time}) AS INTEGER)",
}


def epoch(time: str) -> str:
    """A column of times as whole seconds, in SQL with parameters."""
    return _EPOCH[connection.vendor].format(time=time)


class Cut(NamedTuple):
    """How SQL numbers the buckets of a period, and which bucket (its start, in UTC) a number means."""

    expression: str
    parameters: list[Any]
    interval: Interval
    zone: ZoneInfo
    starts: tuple[datetime, ...]

    def bucket(self, number: int) -> datetime:
        if self.interval == Interval.HOUR:
            return datetime.fromtimestamp(number, UTC)
        if self.interval == Interval.MONTH:
            return self.starts[number]
        return midnight(date.fromordinal(_EPOCH_ORDINAL + number), self.zone)


def cut(start: datetime, end: datetime, *, interval: Interval, zone: ZoneInfo, time: str) -> Cut:
    """For rows with that column of times. Hours are numbered by their start, days by their count, months in order."""
    if interval == Interval.MONTH:
        starts = buckets(start, end, interval=interval, zone=zone)
        expression, parameters = _stepped(time, [(at, place) for place, at in enumerate(starts)])
        return Cut(expression, parameters, interval, zone, starts)
    parts = [(part.starts_at, part.offset_seconds) for part in stretches(start, end, zone)]
    offset, parameters = _stepped(time, parts)
    if interval == Interval.DAY:
        return Cut(f"({epoch(time)} + {offset}) / 86400", parameters, interval, zone, ())
    return Cut(f"({epoch(time)} + {offset}) / 3600 * 3600 - {offset}", parameters * 2, interval, zone, ())


def _stepped(time: str, steps: list[tuple[datetime, int]]) -> tuple[str, list[Any]]:
    """The number of the last step that began at a row's time or before."""
    ends = [connection.ops.adapt_datetimefield_value(at) for at, _ in steps[1:]]
    if not ends:
        return str(steps[-1][1]), []
    whens = " ".join(f"WHEN {time} < %s THEN {number}" for _, number in steps[:-1])
    return f"(CASE {whens} ELSE {steps[-1][1]} END)", ends


# -- in Python ----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def buckets(start: datetime, end: datetime, *, interval: Interval, zone: ZoneInfo) -> tuple[datetime, ...]:
    """The start, in UTC, of every bucket that a period touches. A page asks for the same ones several times."""
    return tuple(_buckets(start, end, interval, zone))


def _buckets(start: datetime, end: datetime, interval: Interval, zone: ZoneInfo) -> Iterator[datetime]:
    if interval == Interval.HOUR:
        yield from _hours(start, end, zone)
        return
    day = start.astimezone(zone).date()
    if interval == Interval.MONTH:
        day = day.replace(day=1)
    while (at := midnight(day, zone)) < end:
        yield at
        day = following_month(day) if interval == Interval.MONTH else day + timedelta(days=1)


def following_month(day: date) -> date:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)


def _hours(start: datetime, end: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Hours by the zone's clock; one that is cut by a change of less than an hour counts once for each offset."""
    parts = stretches(start, end, zone)
    ends = [*(part.starts_at for part in parts[1:]), end]
    for part, until in zip(parts, ends, strict=True):
        number = int(part.starts_at.timestamp() + part.offset_seconds) // 3_600
        while (at := datetime.fromtimestamp(number * 3_600 - part.offset_seconds, UTC)) < until:
            yield at
            number += 1
