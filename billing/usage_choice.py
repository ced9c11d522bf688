"""What a reader of the usage page chose, read from the URL: every nonsense in it becomes the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from django.db import models
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from billing.buckets import Interval
from billing.reports import GroupBy, UsageQuery

LONGEST_DAYS = 800


class Period(models.TextChoices):
    TODAY = "1", _("Today")
    WEEK = "7", _("7 days")
    MONTH = "30", _("30 days")
    QUARTER = "90", _("90 days")


@dataclass(frozen=True)
class UsageChoice:
    """`period` is None when the URL names its own first and last day."""

    first: date
    last: date
    period: Period | None
    group_by: GroupBy
    filters: Mapping[GroupBy, str | int]

    @classmethod
    def read(cls, values: Mapping[str, str], *, zone: ZoneInfo, now: datetime) -> Self:
        today = now.astimezone(zone).date()
        group = values.get("group", "")
        group_by = GroupBy(group) if group in GroupBy.values else GroupBy.MODEL
        filters = {by: value for by in GroupBy if (value := _filter(by, values.get(by.value, ""))) is not None}
        own = _own_days(values, today=today)
        if own:
            return cls(*own, None, group_by, filters)
        chosen = values.get("period", "")
        period = Period(chosen) if chosen in Period.values else Period.MONTH
        return cls(today - timedelta(days=int(period) - 1), today, period, group_by, filters)

    def query(self, team_id: int, zone: ZoneInfo) -> UsageQuery:
        interval = Interval.HOUR if self.first == self.last else Interval.DAY
        return UsageQuery.for_days(
            team_id, self.first, self.last, zone, interval=interval, group_by=(self.group_by,), filters=self.filters
        )

    @property
    def group_label(self) -> str | Promise:
        return self.group_by.label


def _own_days(values: Mapping[str, str], *, today: date) -> tuple[date, date] | None:
    try:
        first, last = date.fromisoformat(values.get("start", "")), date.fromisoformat(values.get("end", ""))
    except ValueError:
        return None
    last = min(last, today)
    return (first, last) if first <= last and (last - first).days < LONGEST_DAYS else None


def _filter(by: GroupBy, value: str) -> str | int | None:
    if by not in {GroupBy.KEY, GroupBy.MEMBER}:
        return value[:200] or None
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
