"""The quota counters beside the ledger. Whoever keeps the counters says here how they are read.

A counter holds what its period's finished calls came to, what is only set aside apart. It is quicker than the ledger,
and a moment ahead of it: a call is counted when it ends, its record is in the database a moment later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from django.conf import settings
from django.utils import timezone

from accounts.models import ApiKey, Team
from billing.pricing import format_points
from billing.quota import ROLLING, Period, PeriodKind, period_at, points_limit_ppt, used_ppt
from billing.rates import RateCard

# Long enough for what was counted to have reached the database.
SHIPPED_SECONDS = 1.0
# Web processes look at the ledger twice a minute and lower a counter after three looks; what differs for longer is a
# difference.
PATIENCE_SECONDS = 120.0
RETRY_SECONDS = 2.0


class Owner(NamedTuple):
    """Whose points: a team's, or a key's where `key_id` is not 0."""

    team_id: int = 0
    key_id: int = 0

    def __str__(self) -> str:
        return f"key {self.key_id}" if self.key_id else f"team {self.team_id}"


class Counted(NamedTuple):
    """What a counter stands at, for the period that ends then."""

    ends_at: datetime
    used_ppt: int


type Counters = Mapping[Owner, Counted]


class NotReadable(Exception):
    """The counters cannot be read now; the message says why."""


def _nowhere() -> Counters | None:
    return None


_read: Callable[[], Counters | None] = _nowhere


def provide(read: Callable[[], Counters | None]) -> None:
    """`read` gives all counters of the installation, or None where only the web process itself has them."""
    global _read
    _read = read


def are_readable() -> bool:
    """Whether they are kept where any process can read them."""
    try:
        return _read() is not None
    except NotReadable:
        return True


def differences() -> list[str]:
    """Counters of running periods that are not what the ledger has. What differs is looked at again for a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        odd = _differing(_read() or {})
        while odd and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)
            again = _read() or {}
            odd = _differing({owner: counted for owner, counted in again.items() if owner in odd})
    except NotReadable as error:
        return [f"the quota counters could not be read: {error}"]
    return [odd[owner] for owner in sorted(odd)]


def _differing(before: Counters) -> dict[Owner, str]:
    """The ledger knows all that was counted before, and nothing that is not counted afterwards."""
    periods = {owner: period for owner, counted in before.items() if (period := _period(owner, counted))}
    if not periods:
        return {}
    time.sleep(SHIPPED_SECONDS)
    card = RateCard.load()
    ledger = {
        owner: used_ppt(team_id=team_id, key_id=owner.key_id or None, period=period, card=card)
        for owner, (team_id, period) in periods.items()
    }
    after = _read() or {}
    odd = {}
    for owner, there in ledger.items():
        least, most = before[owner], after.get(owner)
        if most and most.ends_at == least.ends_at and not least.used_ppt <= there <= most.used_ppt:
            counted = format_points(most.used_ppt)
            odd[owner] = f"quota counter of {owner}: {counted} points counted, {format_points(there)} in the ledger"
    return odd


def _period(owner: Owner, counted: Counted) -> tuple[int, Period] | None:
    """Team and period that a counter is for; None for one that no call will go by: over, or of other terms."""
    if owner.key_id:
        key = ApiKey.objects.filter(pk=owner.key_id).select_related("team").first()
        team, limit_ppt = (key.team, key.points_limit_ppt) if key else (None, 0)
    else:
        team = Team.objects.filter(pk=owner.team_id).first()
        limit_ppt = points_limit_ppt(team) if team else 0
    if team is None or not limit_ppt or counted.ends_at <= timezone.now():
        return None
    kind: PeriodKind = team.points_period or settings.TEAM_POINTS_PERIOD  # type: ignore[assignment]
    if kind == "rolling":
        return team.pk, Period(counted.ends_at - ROLLING, counted.ends_at)
    period = period_at(kind, ZoneInfo(team.time_zone), counted.ends_at - timedelta(milliseconds=1))
    return (team.pk, period) if period.end == counted.ends_at else None
