"""Amounts and shares as the pages print them."""

from __future__ import annotations

import asyncio
from typing import Any

from django import template
from django.utils.formats import number_format

from billing.pricing import format_points
from billing.quota_notices import cached_status, known_status

register = template.Library()


@register.filter
def points(amount_ppt: int) -> str:
    """Exact points of an amount; never rounded, so that what is printed adds up."""
    return format_points(amount_ppt)


@register.filter
def percent(share: float | None) -> str:
    """A share of 1 as a percentage with one decimal; a dash without one."""
    return "–" if share is None else f"{number_format(share * 100, 1)} %"


@register.inclusion_tag("billing/quota_banner.html", takes_context=True)
def quota_banner(context: template.Context) -> dict[str, Any]:
    """A line on every page of a team that has used most of its points."""
    request = context.get("request")
    team = getattr(request, "team", None)
    if not team:
        return {}
    return {"status": known_status(team) if _is_in_event_loop() else cached_status(team), "team": team}


def _is_in_event_loop() -> bool:
    """There the database cannot be asked; the page shows what was known a moment ago."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
