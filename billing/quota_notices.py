"""Warnings at 80 % and 100 % of a period's points: one mail each to owners and admins, and a banner on the pages."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.cache import cache
from django.core.mail import EmailMessage
from django.db.models import Exists, OuterRef, QuerySet
from django.template.loader import render_to_string
from django.utils import timezone, translation

from accounts.models import Membership, Role, Team
from billing.models import QuotaNotice, Rollup
from billing.pricing import format_points
from billing.quota import Period, period_of, points_limit_ppt, used_ppt

logger = logging.getLogger(__name__)
LEVELS = (80, 100)
CACHE_SECONDS = 20
# A team that used nothing for so long has been warned of what it used before.
RECENT = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class QuotaStatus:
    """How far a team is through its points. `level` is the highest of `LEVELS` that it has reached, or 0."""

    limit_ppt: int
    used_ppt: int
    period: Period
    zone: str

    @classmethod
    def of(cls, team: Team, *, now: datetime) -> Self | None:
        """None for a team without a limit."""
        limit_ppt = points_limit_ppt(team)
        if not limit_ppt:
            return None
        period = period_of(team, now)
        return cls(limit_ppt, used_ppt(team_id=team.pk, period=period), period, team.time_zone)

    @property
    def level(self) -> int:
        return max((level for level in LEVELS if self.used_ppt * 100 >= self.limit_ppt * level), default=0)

    @property
    def left_ppt(self) -> int:
        return max(0, self.limit_ppt - self.used_ppt)

    @property
    def resets_at(self) -> datetime:
        return self.period.end.astimezone(ZoneInfo(self.zone))


def cached_status(team: Team) -> QuotaStatus | None:
    """Up to `CACHE_SECONDS` old: every page asks for it."""
    found: QuotaStatus | str | None = cache.get_or_set(
        _cache_key(team), lambda: QuotaStatus.of(team, now=timezone.now()) or "", CACHE_SECONDS
    )
    return found if isinstance(found, QuotaStatus) else None


def known_status(team: Team) -> QuotaStatus | None:
    """What the cache knows, without a look into the database."""
    found = cache.get(_cache_key(team))
    return found if isinstance(found, QuotaStatus) else None


def _cache_key(team: Team) -> str:
    return f"quota-status-{team.pk}-{team.points_limit_ppt}-{team.points_period}"


# -- mails --------------------------------------------------------------------------------------


def warn_teams(*, now: datetime) -> int:
    """Send what is due to teams that used something lately; returns the number of mails."""
    sent = 0
    for team in _active_teams(now):
        status = QuotaStatus.of(team, now=now)
        if status and status.level and _warn(team, status):
            sent += 1
    return sent


def _active_teams(now: datetime) -> QuerySet[Team]:
    lately = Rollup.objects.filter(team_id=OuterRef("pk"), quarter_at__gte=now - RECENT)
    return Team.objects.filter(Exists(lately)).order_by("pk")


def _warn(team: Team, status: QuotaStatus) -> bool:
    """Whoever adds the row sends the mail, so two sweeps at once send one. A mail that fails is tried again."""
    reached = [
        QuotaNotice(
            team_id=team.pk,
            period_start_at=status.period.start,
            level=level,
            limit_ppt=status.limit_ppt,
            used_ppt=status.used_ppt,
        )
        for level in LEVELS
        if level <= status.level
    ]
    known = QuotaNotice.objects.filter(team_id=team.pk, period_start_at=status.period.start, limit_ppt=status.limit_ppt)
    before = set(known.values_list("level", flat=True))
    fresh = [notice for notice in reached if notice.level not in before]
    if not fresh:
        return False
    highest, made = known.get_or_create(
        team_id=team.pk,
        period_start_at=status.period.start,
        limit_ppt=status.limit_ppt,
        level=fresh[-1].level,
        defaults={"used_ppt": status.used_ppt},
    )
    if not made:
        return False
    QuotaNotice.objects.bulk_create(fresh[:-1], ignore_conflicts=True)
    try:
        _mail(team, status)
    except OSError:
        logger.exception("The warning to team %s could not be sent; it is tried again", team.pk)
        highest.delete()
        return False
    return True


def _mail(team: Team, status: QuotaStatus) -> None:
    to = list(
        Membership.objects.filter(team=team, role__in=[Role.OWNER, Role.ADMIN], user__is_active=True)
        .order_by("pk")
        .values_list("user__email", flat=True)
    )
    if not to:
        return
    context = {
        "team": team,
        "status": status,
        "used": format_points(status.used_ppt),
        "limit": format_points(status.limit_ppt),
        "site_name": settings.SITE_NAME,
        "site_url": settings.SITE_URL,
    }
    with translation.override(settings.LANGUAGE_CODE):
        subject = " ".join(render_to_string("email/quota_subject.txt", context).split())
        body = render_to_string("email/quota.txt", context)
    # One mail each: addresses are nobody else's to see.
    for address in to:
        EmailMessage(subject, body, to=[address]).send()
