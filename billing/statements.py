"""A month of a team on one page: what it used, by model, key and member, to the last digit, and at which rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo

from accounts.models import Team
from billing.buckets import Interval, following_month, midnight
from billing.charts import Chart, stacked_bars
from billing.models import Meter, Rate, Rollup, UsageRecord
from billing.reports import Group, GroupBy, Sums, UsageQuery, UsageReport
from billing.snapshots import one_moment

PARTS = (GroupBy.MODEL, GroupBy.KEY, GroupBy.MEMBER)


class Month(NamedTuple):
    """A month of a zone's calendar."""

    first: date
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, zone: ZoneInfo) -> Self | None:
        """`2026-11`; None for what is no month that reports reach."""
        try:
            first = date.fromisoformat(f"{text}-01")
        except ValueError:
            return None
        return cls(first, zone) if 2001 <= first.year <= 9000 and len(text) == len("2026-11") else None

    @classmethod
    def at(cls, moment: datetime, zone: ZoneInfo) -> Self:
        return cls(moment.astimezone(zone).date().replace(day=1), zone)

    @property
    def start(self) -> datetime:
        return midnight(self.first, self.zone)

    @property
    def end(self) -> datetime:
        return midnight(following_month(self.first), self.zone)

    @property
    def last(self) -> date:
        return following_month(self.first) - timedelta(days=1)

    @property
    def before(self) -> Month:
        return Month((self.first - timedelta(days=1)).replace(day=1), self.zone)

    @property
    def following(self) -> Month:
        return Month(following_month(self.first), self.zone)

    def __str__(self) -> str:
        return f"{self.first:%Y-%m}"


class RateLine(NamedTuple):
    """A model's rates from a moment of the month on, by meter; `since` is None where they held from its first."""

    model: str
    since: datetime | None
    rates: Mapping[str, Decimal]


class DayLine(NamedTuple):
    label: str
    sums: Sums


@dataclass(frozen=True)
class Statement:
    team: Team
    month: Month
    made_at: datetime
    reports: Mapping[GroupBy, UsageReport]
    days: UsageReport
    rates: Sequence[RateLine]
    waiting: int

    @classmethod
    def of(cls, team: Team, month: Month, *, now: datetime) -> Self:
        """Read in one moment. Raises TookTooLong."""
        whole = UsageQuery(team.pk, month.start, month.end, month.zone, Interval.MONTH)
        with one_moment():
            reports = {by: replace(whole, group_by=(by,)).run() for by in PARTS}
            days = replace(whole, interval=Interval.DAY).run()
            waiting = UsageRecord.objects.filter(
                team_id=team.pk, rated_at=None, started_at__gte=month.start, started_at__lt=month.end
            ).count()
            models = [str(key[0]) for key in reports[GroupBy.MODEL].by_group]
            return cls(team, month, now, reports, days, list(_rates(models, month)), waiting)

    @property
    def total(self) -> Sums:
        return self.days.total

    @property
    def parts(self) -> list[tuple[GroupBy, list[tuple[Group, Sums]]]]:
        """By model, key and member: each group and what it came to, the largest first."""
        return [
            (by, [(group, report.by_group[group.key]) for group in report.groups])
            for by, report in self.reports.items()
        ]

    @cached_property
    def chart(self) -> Chart:
        return stacked_bars(self.days)

    @property
    def day_lines(self) -> list[DayLine]:
        return [
            DayLine(self.chart.names[bucket], self.days.by_bucket.get(bucket, Sums())) for bucket in self.days.buckets
        ]

    @property
    def unpriced(self) -> list[str]:
        """Models that were used without any rate."""
        priced = {line.model for line in self.rates}
        return [group.label for group in self.reports[GroupBy.MODEL].groups if group.label not in priced]

    @property
    def rate_meters(self) -> list[Meter]:
        """The meters that any of the rates is of."""
        return [meter for meter in Meter if any(meter in line.rates for line in self.rates)]

    @property
    def is_over(self) -> bool:
        return self.made_at >= self.month.end

    @property
    def file_query(self) -> UsageQuery:
        """The lines of the attached file: model, key and member together."""
        return replace(self.reports[GroupBy.MODEL].query, group_by=PARTS)


def months_of(team: Team, *, now: datetime) -> list[tuple[Month, Sums]]:
    """Each month from the first with usage to the present one, the newest first."""
    zone = ZoneInfo(team.time_zone)
    first = Rollup.objects.filter(team_id=team.pk).order_by("quarter_at").values_list("quarter_at", flat=True).first()
    if first is None:
        return []
    oldest, newest = Month.at(first, zone), Month.at(now, zone)
    query = UsageQuery(team.pk, oldest.start, newest.end, zone, Interval.MONTH)
    by_month = query.run().by_bucket
    months = (Month.at(bucket.astimezone(UTC), zone) for bucket in query.buckets[::-1])
    return [(month, by_month.get(month.start, Sums())) for month in months]


def _rates(models: Sequence[str], month: Month) -> Iterator[RateLine]:
    """Those in force at the month's beginning, and those that came during it."""
    of_models = Rate.objects.filter(model__in=models)
    held = list(of_models.in_force(month.start))
    came = list(of_models.filter(effective_from__gt=month.start, effective_from__lt=month.end))
    lines: dict[tuple[str, datetime | None], dict[str, Decimal]] = {}
    for rate, since in [(one, None) for one in held] + [(one, one.effective_from) for one in came]:
        lines.setdefault((rate.model, since), {})[rate.meter] = rate.rate
    for model, since in sorted(lines, key=lambda line: (line[0], line[1] or month.start)):
        yield RateLine(model, since, lines[model, since])
