"""Points that keys used in the last thirty days, for the pages of keys.

{% points_of_team_keys request.team as spent %} … {% key_points key spent %}    one query for a list of keys
{% key_points key %}                                                            for one key alone
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django import template
from django.utils import timezone

from accounts.models import ApiKey, Team
from billing.buckets import midnight
from billing.pricing import format_points
from billing.reports import GroupBy, usage_by_bucket

register = template.Library()

DAYS = 30
# In the SVG's units: a bar and its gap are 4 wide, the highest bar 20.
STEP, BAR, HEIGHT = 4, 3, 20
LEAST_HEIGHT = 1.5


class Bar(NamedTuple):
    x: int
    y: str
    height: str
    title: str


class KeyPoints(NamedTuple):
    """Amounts by day of the team's zone, the oldest first."""

    days: tuple[tuple[datetime, int], ...]

    @property
    def total(self) -> str:
        return format_points(sum(amount for _, amount in self.days))

    @property
    def bars(self) -> list[Bar]:
        highest = max((amount for _, amount in self.days), default=0)
        return [_bar(place, day, amount, highest) for place, (day, amount) in enumerate(self.days) if amount]


@register.simple_tag
def points_of_team_keys(team: Team) -> Mapping[int, KeyPoints]:
    return _points(team)


@register.inclusion_tag("billing/key_points.html")
def key_points(key: ApiKey, spent: Mapping[int, KeyPoints] | None = None) -> dict[str, Any]:
    found = _points(key.team, key=key) if spent is None else spent
    return {
        "key": key,
        "points": found.get(key.pk) or KeyPoints(()),
        "width": DAYS * STEP,
        "height": HEIGHT,
        "bar": BAR,
        "days": DAYS,
    }


def _points(team: Team, *, key: ApiKey | None = None) -> dict[int, KeyPoints]:
    zone = ZoneInfo(team.time_zone)
    today = timezone.now().astimezone(zone).date()
    start, end = midnight(today - timedelta(days=DAYS - 1), zone), midnight(today + timedelta(days=1), zone)
    filters = {GroupBy.KEY: key.pk} if key else {}
    report = usage_by_bucket(team.pk, start, end, zone, group_by=GroupBy.KEY, filters=filters)
    cells = {(day, values[0]): sums.amount_ppt for (day, values), sums in report.cells.items()}
    used = {key_id for _, key_id in cells}
    return {
        int(id): KeyPoints(tuple((day.astimezone(zone), cells.get((day, id), 0)) for day in report.buckets))
        for id in used
    }


def _bar(place: int, day: datetime, amount: int, highest: int) -> Bar:
    height = max(LEAST_HEIGHT, HEIGHT * amount / highest)
    return Bar(place * STEP, f"{HEIGHT - height:.2f}", f"{height:.2f}", f"{day:%Y-%m-%d}: {format_points(amount)}")
