"""What a reader of the usage pages chose, read from the URL: every nonsense in it becomes the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Self
from zoneinfo import ZoneInfo, available_timezones

from django.db import models
from django.utils.functional import Promise
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from billing.buckets import Interval, floor_quarter
from billing.reports import GroupBy, UsageQuery

LONGEST_DAYS = 800
# More bars than these tell nothing and are slow to draw.
MOST_DAYS = {Interval.HOUR: 10, Interval.DAY: 400, Interval.MONTH: LONGEST_DAYS}
DAYS_BY_HOUR, DAYS_BY_DAY = 2, 190
_ODD = ("Etc/", "SystemV/", "US/", "posix/", "right/")


class Period(models.TextChoices):
    TODAY = "1", _("Today")
    WEEK = "7", _("7 days")
    MONTH = "30", _("30 days")
    QUARTER = "90", _("90 days")
    YEAR = "365", _("12 months")


@dataclass(frozen=True)
class UsageChoice:
    """`period` is None when the URL names its own first and last day; `cut` when it leaves the interval to the page."""

    first: date
    last: date
    today: date
    period: Period | None
    cut: Interval | None
    zone: ZoneInfo
    group_by: GroupBy
    filters: Mapping[GroupBy, str | int]

    @classmethod
    def read(cls, values: Mapping[str, str], *, zone: ZoneInfo, now: datetime) -> Self:
        zone = read_zone(values.get("tz", "")) or zone
        today = now.astimezone(zone).date()
        group, cut = values.get("group", ""), values.get("interval", "")
        chosen = values.get("period", "")
        period = Period(chosen) if chosen in Period.values else Period.MONTH
        own = _own_days(values, today=today)
        first, last = own or (today - timedelta(days=int(period) - 1), today)
        return cls(
            first=first,
            last=last,
            today=today,
            period=None if own else period,
            cut=Interval(cut) if cut in Interval.values and _may_cut(Interval(cut), first, last) else None,
            zone=zone,
            group_by=GroupBy(group) if group in GroupBy.values else GroupBy.MODEL,
            filters=read_filters(values),
        )

    @property
    def days(self) -> int:
        return (self.last - self.first).days + 1

    @property
    def interval(self) -> Interval:
        if self.cut:
            return self.cut
        if self.days <= DAYS_BY_HOUR:
            return Interval.HOUR
        return Interval.DAY if self.days <= DAYS_BY_DAY else Interval.MONTH

    @property
    def intervals(self) -> list[tuple[Interval, bool]]:
        """Each, and whether this period can be cut so."""
        return [(interval, _may_cut(interval, self.first, self.last)) for interval in Interval]

    def query(self, team_id: int) -> UsageQuery:
        return UsageQuery.for_days(
            team_id, self.first, self.last, self.zone,
            interval=self.interval, group_by=(self.group_by,), filters=self.filters,
        )  # fmt: skip

    def query_before(self, team_id: int, *, now: datetime) -> UsageQuery | None:
        """The same query of as many days before; while the period goes on, up to the same time of its last day."""
        first, last = self.first - timedelta(days=self.days), self.first - timedelta(days=1)
        if first.year < UNTIL.year:
            return None
        query = UsageQuery.for_days(
            team_id, first, last, self.zone, interval=self.interval, group_by=(self.group_by,), filters=self.filters
        )
        if self.last < self.today:
            return query
        clock = floor_quarter(now).astimezone(self.zone).time()
        end = datetime.combine(last, clock, self.zone).astimezone(UTC)
        if end <= query.start:
            return None
        return UsageQuery(team_id, query.start, end, self.zone, self.interval, (self.group_by,), self.filters)

    @property
    def is_going_on(self) -> bool:
        return self.last >= self.today

    @property
    def group_label(self) -> str | Promise:
        return self.group_by.label


UNTIL = date(2001, 1, 1)
"""No report looks further back."""


def read_zone(name: str) -> ZoneInfo | None:
    return ZoneInfo(name) if name in _zone_names() else None


@cache
def _zone_names() -> frozenset[str]:
    return frozenset({"UTC", *(name for name in available_timezones() if "/" in name and not name.startswith(_ODD))})


@cache
def zone_options() -> SafeString:
    """Every zone with a place in it, and UTC, as options of a select. Made once: there are hundreds."""
    return format_html_join("", "<option>{}</option>", ((name,) for name in sorted(_zone_names())))


def read_filters(values: Mapping[str, str]) -> dict[GroupBy, str | int]:
    return {by: value for by in GroupBy if (value := _filter(by, values.get(by.value, ""))) is not None}


def days_of(bucket: datetime, interval: Interval, zone: ZoneInfo) -> tuple[date, date]:
    """The first and the last day of a bucket."""
    day = bucket.astimezone(zone).date()
    return day, _last_of_month(day) if interval == Interval.MONTH else day


def _last_of_month(day: date) -> date:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)


def _may_cut(interval: Interval, first: date, last: date) -> bool:
    return (last - first).days < MOST_DAYS[interval]


def _own_days(values: Mapping[str, str], *, today: date) -> tuple[date, date] | None:
    try:
        first, last = date.fromisoformat(values.get("start", "")), date.fromisoformat(values.get("end", ""))
    except ValueError:
        return None
    last = min(last, today)
    return (first, last) if UNTIL <= first <= last and (last - first).days < LONGEST_DAYS else None


def _filter(by: GroupBy, value: str) -> str | int | None:
    if not by.is_number:
        return value[:200].replace("\0", "") or None
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
