"""A team's points of a period: when it begins and ends, what was used in it, what a request will and did cost.

The ledger is the truth. The counters that admission keeps are quicker and may drift; `used_ppt` is what they
are corrected by. A request counts in the period in which it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import BigIntegerField, CharField, DateTimeField, F, OuterRef, Q, QuerySet, Subquery, Sum, Value
from django.db.models.functions import Greatest, Least

from accounts.models import Team
from billing.buckets import QUARTER, floor_quarter, following_month, midnight
from billing.models import Charge, Correction, Rate, Rollup, Source, UsageRecord
from billing.pricing import MAX_PAGES, MAX_TOKENS, METERS, PPT_PER_POINT, Usage, sum_ppt, total_ppt
from billing.rates import RateCard

type PeriodKind = Literal["day", "month", "rolling"]

ROLLING = timedelta(hours=24)
# How far back the windows of a rolling period are followed when their counter is lost.
LOOK_BACK = timedelta(days=31)
# As in reports: SQLite's sums end at 63 bits.
_HALF = 10**9
_ANY_UNITS = reduce(or_, (Q(**{f"{meter}_units__gt": 0}) for meter in METERS))


class Period(NamedTuple):
    """From `start` (included) to `end` (not), both in UTC."""

    start: datetime
    end: datetime


def period_at(kind: PeriodKind, zone: ZoneInfo, now: datetime, *, first_charged_at: datetime | None = None) -> Period:
    """The period that `now` lies in.

    `day` and `month` begin at the zone's midnight. `rolling` is 24 hours from `first_charged_at`, the first charged
    request after the window before; without it, or once that window is over, a new one would begin now.
    """
    if kind == "rolling":
        is_open = first_charged_at is not None and first_charged_at <= now < first_charged_at + ROLLING
        start = (first_charged_at if is_open and first_charged_at else now).astimezone(UTC)
        return Period(start, start + ROLLING)
    today = now.astimezone(zone).date()
    if kind == "month":
        first = today.replace(day=1)
        return Period(midnight(first, zone), midnight(following_month(first), zone))
    return Period(midnight(today, zone), midnight(today + timedelta(days=1), zone))


def points_limit_ppt(team: Team) -> int:
    """What the team may use a period; 0 is no limit."""
    if team.points_limit_ppt is not None:
        return team.points_limit_ppt
    return int(settings.TEAM_POINTS_LIMIT * PPT_PER_POINT)


def period_of(team: Team, now: datetime) -> Period:
    kind: PeriodKind = team.points_period or settings.TEAM_POINTS_PERIOD  # type: ignore[assignment]
    first = rolling_start(team_id=team.pk, now=now) if kind == "rolling" else None
    return period_at(kind, ZoneInfo(team.time_zone), now, first_charged_at=first)


# -- prices ---------------------------------------------------------------------------------------


def reservation_ppt(
    prices: Mapping[str, int],
    *,
    prompt_tokens_estimate: int,
    max_output_tokens: int,
    pages: int = 0,
    characters: int = 0,
) -> int:
    """What a request may cost at most: no cache hit, all the output it may write."""
    return total_ppt(Usage(prompt_tokens_estimate, 0, max_output_tokens, pages, characters), prices)


# -- the ledger's count ---------------------------------------------------------------------------


def used_ppt(*, team_id: int, key_id: int | None = None, period: Period, card: RateCard | None = None) -> int:
    """Picopoints of the period, to the last one, records that still wait to be rated included.

    Whole quarter hours come from the rollups, the edges of a rolling window from charges, and what waits is added up
    by its prices and priced here. One statement reads all three: a record that is rated meanwhile is in it once.
    """
    of_whom: dict[str, int] = {"team_id": team_id} | ({} if key_id is None else {"key_id": key_id})
    first, last = _whole_quarters(period)
    parts = [_of_rollups(of_whom, first, last)]
    edges = [(period.start, first), (last, period.end)] if first < last else [(period.start, period.end)]
    for start, end in edges:
        if start < end:
            parts += [_of_records(rows, of_whom, start, end) for rows in (Charge.objects.all(), _corrections())]
    rows = _waiting(of_whom, period).union(*parts, all=True)
    total = 0
    for model, priced_at, *counts in rows:
        if not model:
            total += int(counts[0] or 0) * _HALF + int(counts[1] or 0)
        elif priced_at:
            card = card or RateCard.load()
            # PostgreSQL's sums are numeric.
            total += sum_ppt(tuple(map(int, counts)), card.prices(model, priced_at))
    return total


def _whole_quarters(period: Period) -> tuple[datetime, datetime]:
    floor = floor_quarter(period.start)
    return (floor if floor == period.start else floor + QUARTER), floor_quarter(period.end)


def _waiting(of_whom: dict[str, int], period: Period) -> QuerySet[Any, tuple[Any, ...]]:
    """A row for each model and set of prices, its counts added up within their limits: however many wait (a worker may
    have been away for a day), there are few of them."""
    records = UsageRecord.objects.answered().filter(
        **of_whom, rated_at=None, started_at__gte=period.start, started_at__lt=period.end
    )
    rates = Rate.objects.filter(model=OuterRef("model"), effective_from__lte=OuterRef("started_at"))
    prompt = _within("prompt_tokens", MAX_TOKENS)
    counts = [
        prompt,
        _within("cached_tokens", prompt),
        _within("completion_tokens", MAX_TOKENS),
        _within("pages", MAX_PAGES),
        _within("characters", MAX_TOKENS),
    ]
    sums = {f"sum_{place}": Sum(count, output_field=BigIntegerField()) for place, count in enumerate(counts)}
    return (
        records.order_by()
        .annotate(priced_at=Subquery(rates.order_by("-effective_from").values("effective_from")[:1]))
        .values("model", "priced_at")
        .annotate(**sums)
        .values_list("model", "priced_at", *sums)
    )


def _within(name: str, ceiling: int | Greatest) -> Greatest:
    return Greatest(Least(F(name), ceiling), 0)


def _of_rollups(of_whom: dict[str, int], start: datetime, end: datetime) -> QuerySet[Any, tuple[Any, ...]]:
    return _summed(Rollup.objects.filter(**of_whom, quarter_at__gte=start, quarter_at__lt=end))


def _of_records(
    rows: QuerySet[Any], of_whom: dict[str, int], start: datetime, end: datetime
) -> QuerySet[Any, tuple[Any, ...]]:
    named = {f"record__{name}": value for name, value in of_whom.items()}
    return _summed(rows.filter(**named, record__started_at__gte=start, record__started_at__lt=end))


def _corrections() -> QuerySet[Any]:
    return Correction.objects.annotate(amount_ppt=F("amount_delta_ppt"))


def _summed(rows: QuerySet[Any]) -> QuerySet[Any, tuple[Any, ...]]:
    """One row in the shape of a waiting record: without a model, the sum as high and low half in the first counts."""
    nothing = Value(0, output_field=BigIntegerField())
    summed: QuerySet[Any, tuple[Any, ...]] = (
        rows.order_by()
        .annotate(no_model=Value("", output_field=CharField()), no_time=Value(None, output_field=DateTimeField()))
        .values("no_model", "no_time")
        .annotate(high=Sum(F("amount_ppt") / _HALF), low=Sum(F("amount_ppt") % _HALF))
        .annotate(**{f"no_{place}": nothing for place in range(3)})
        .values_list("no_model", "no_time", "high", "low", "no_0", "no_1", "no_2")
    )
    return summed


def rolling_start(*, team_id: int, key_id: int | None = None, now: datetime) -> datetime | None:
    """When the rolling window that is open at `now` began, from the ledger alone; None while none is open.

    Windows follow on each other, so they are followed from a pause of 24 hours on (or, where there has been none
    in `LOOK_BACK`, from its beginning: then the window may be another one than the lost counter's).
    """
    of_whom = {"team_id": team_id} | ({} if key_id is None else {"key_id": key_id})
    records = (
        UsageRecord.objects.answered().filter(**of_whom).order_by("started_at").values_list("started_at", flat=True)
    )
    quarters = _used_quarters(of_whom, now)
    start, end = None, quarters[0] if quarters else now - LOOK_BACK
    while end <= now:
        # The next quarter with usage is where to look for the exact moment; what is not rated yet has none.
        at = next((quarter for quarter in quarters if quarter + QUARTER > end), end)
        start = records.filter(started_at__gte=max(at, end), started_at__lte=now).first()
        if start is None:
            return None
        end = start + ROLLING
    return start


def _used_quarters(of_whom: dict[str, int], now: datetime) -> list[datetime]:
    rows = Rollup.objects.filter(**of_whom, quarter_at__gte=now - LOOK_BACK, quarter_at__lte=now)
    charged = rows.exclude(source=Source.DEDICATED).filter(_ANY_UNITS)
    quarters = list(charged.order_by("quarter_at").values_list("quarter_at", flat=True).distinct())
    gaps = [place for place in range(1, len(quarters)) if quarters[place] - quarters[place - 1] >= ROLLING + QUARTER]
    return quarters[gaps[-1] :] if gaps else quarters
