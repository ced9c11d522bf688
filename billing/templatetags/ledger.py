"""Amounts and shares as the pages print them."""

from __future__ import annotations

import asyncio
from typing import Any

from django import template
from django.utils import timezone

from billing.models import Meter, Rate
from billing.number_cells import decimal
from billing.pricing import format_points
from billing.quota_notices import cached_status, known_status
from billing.rates import RateCard, format_rate_of

register = template.Library()


@register.filter
def points(amount_ppt: int) -> str:
    """Exact points of an amount; never rounded, so that what is printed adds up."""
    return format_points(amount_ppt)


@register.filter
def percent(share: float | None) -> str:
    """A share of 1 as a percentage with one decimal; a dash without one."""
    return "–" if share is None else f"{decimal(share * 100, 1)} %"


@register.inclusion_tag("billing/rate_history.html")
def rate_history(model: str) -> dict[str, Any]:
    """Every change of a model's rates, past and to come; nothing where there is only the first."""
    rows = Rate.objects.filter(model=model).values_list("model", "meter", "rate", "effective_from")
    changes, now = RateCard(rows).changes(model), timezone.now()
    meters = [meter for meter in Meter if any(meter in rates for _, rates in changes)]
    return {
        "meters": meters,
        "changes": [
            (moment, [format_rate_of(rates, meter) for meter in meters])
            for moment, rates in changes
            if len(changes) > 1
        ],
        "current": next((moment for moment, _ in changes if moment <= now), None),
        "now": now,
    }


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
