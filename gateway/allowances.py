"""What a key's and a team's own settings come to, with the site's defaults where they have none."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import cast
from zoneinfo import ZoneInfo

from django.conf import settings

from accounts.models import ApiKey, Team, User
from billing.models import Source
from billing.quota import PeriodKind, points_limit_ppt
from gateway.caller import Allowance, Caller


def caller_of_key(key: ApiKey) -> Caller:
    """`key.team` is loaded."""
    allowance = replace(
        _of_team(key.team),
        key_rpm=_or_default(key.rpm_limit, settings.RATE_LIMIT_KEY_RPM),
        key_concurrency=_or_default(key.concurrency_limit, settings.RATE_LIMIT_KEY_CONCURRENCY),
        key_points_ppt=key.points_limit_ppt or 0,
        models=frozenset(key.models),
        endpoints=frozenset(key.endpoints),
        networks=tuple(ip_network(network) for network in key.networks),
        portable=key.portable,
    )
    return Caller(key.team_id, key.pk, key.created_by_id or 0, Source.API, allowance)


def caller_of_person(*, team: Team, user: User, source: Source) -> Caller:
    """Somebody at the browser, in the team he works in; the team's limits hold for him too."""
    return Caller(team.pk, 0, user.pk, source, _of_team(team))


def _of_team(team: Team) -> Allowance:
    return Allowance(
        team_rpm=_or_default(team.rpm_limit, settings.RATE_LIMIT_TEAM_RPM),
        team_points_ppt=points_limit_ppt(team),
        period=cast(PeriodKind, team.points_period or settings.TEAM_POINTS_PERIOD),
        zone=ZoneInfo(team.time_zone),
    )


def _or_default(own: int | None, default: int) -> int:
    return default if own is None else own
