"""System checks of the deployment: what must hold before the first request."""

from __future__ import annotations

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.core.checks import CheckMessage, Error, register


@register()
def time_zone_exists(**kwargs: object) -> list[CheckMessage]:
    try:
        ZoneInfo(settings.TEAM_TIME_ZONE)
    except (ZoneInfoNotFoundError, ValueError):
        return [Error(f"TEAM_TIME_ZONE names no known time zone: {settings.TEAM_TIME_ZONE!r}", id="config.E001")]
    return []


@register()
def site_url_has_scheme(**kwargs: object) -> list[CheckMessage]:
    if settings.SITE_URL.startswith(("http://", "https://")):
        return []
    return [Error(f"SITE_URL must start with http:// or https://, not {settings.SITE_URL!r}", id="config.E002")]
