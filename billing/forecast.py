"""How far a team's points of this period go, at the pace of the last 24 hours (of a month: of the last 7 days)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from django.core.cache import cache

from billing.quota_notices import CACHE_SECONDS, QuotaStatus
from billing.reports import usage_totals

DAY, WEEK = timedelta(days=1), timedelta(days=7)
# In the gauge's own units.
WHOLE = 1_000


@dataclass(frozen=True, slots=True)
class Gauge:
    """`expected_ppt` is what the period will come to by its end, `empty_at` when the limit is reached before that."""

    status: QuotaStatus
    expected_ppt: int
    empty_at: datetime | None

    @classmethod
    def of(cls, status: QuotaStatus, *, team_id: int, now: datetime) -> Self:
        period = status.period
        # A day of 25 hours is one too.
        window = DAY if period.end - period.start < 2 * DAY else WEEK
        pace_ppt = usage_totals(team_id, now - window, now).amount_ppt
        left = max(timedelta(), period.end - now)
        expected_ppt = status.used_ppt + pace_ppt * _seconds(left) // _seconds(window)
        empty_at = None
        if expected_ppt > status.limit_ppt and pace_ppt:
            empty_at = now + timedelta(seconds=status.left_ppt * _seconds(window) // pace_ppt)
        return cls(status, expected_ppt, empty_at)

    @property
    def share(self) -> float:
        return self.status.used_ppt / self.status.limit_ppt

    @property
    def used_width(self) -> int:
        return min(WHOLE, self.status.used_ppt * WHOLE // self.status.limit_ppt)

    @property
    def expected_width(self) -> int:
        return min(WHOLE, self.expected_ppt * WHOLE // self.status.limit_ppt)


def cached_gauge(status: QuotaStatus, *, team_id: int, now: datetime) -> Gauge:
    """As old as the status may be; a forecast does not change by the second."""
    key = f"quota-gauge-{team_id}-{status.limit_ppt}-{status.used_ppt}"
    found: Gauge | None = cache.get(key)
    if found is None:
        found = Gauge.of(status, team_id=team_id, now=now)
        cache.set(key, found, CACHE_SECONDS)
    return found


def _seconds(span: timedelta) -> int:
    return int(span.total_seconds())
