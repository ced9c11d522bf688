"""Amounts and shares as the pages print them."""

from __future__ import annotations

from django import template
from django.utils.formats import number_format

from billing.pricing import format_points

register = template.Library()


@register.filter
def points(amount_ppt: int) -> str:
    """Exact points of an amount; never rounded, so that what is printed adds up."""
    return format_points(amount_ppt)


@register.filter
def percent(share: float | None) -> str:
    """A share of 1 as a percentage with one decimal; a dash without one."""
    return "–" if share is None else f"{number_format(share * 100, 1)} %"
