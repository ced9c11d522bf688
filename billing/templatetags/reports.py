"""Durations, changes and rough amounts, as the usage pages print them."""

from __future__ import annotations

from django import template
from django.utils.translation import gettext

from billing.models import Meter
from billing.number_cells import decimal
from billing.pricing import PPT_PER_POINT
from billing.rates import format_rate_of

register = template.Library()
MINUTE = 60
# A change of more than this says "many times", not a percentage.
MOST_PERCENT = 999


@register.filter
def seconds(value: float | None) -> str:
    """Milliseconds below a second, two figures after it below ten, minutes from one on; a dash without a value."""
    if value is None:
        return "–"
    if value < 1:
        return gettext("%(count)s ms") % {"count": decimal(value * 1_000)}
    if value < MINUTE:
        return gettext("%(count)s s") % {"count": decimal(value, 2 if value < 10 else 1)}
    minutes, rest = divmod(round(value), MINUTE)
    return gettext("%(minutes)s min %(seconds)s s") % {"minutes": minutes, "seconds": rest}


@register.filter
def change(now: int, before: int) -> str:
    """From before to now in per cent, with its sign; a dash where before was nothing."""
    if not before:
        return "–"
    percent = (now - before) * 100 / before
    if percent > MOST_PERCENT:
        return gettext("× %(times)s") % {"times": decimal(now / before)}
    sign = "+" if percent > 0 else "−" if percent < 0 else "±"
    return f"{sign}{decimal(abs(percent), 1)} %"


@register.filter
def about(amount_ppt: int) -> str:
    """Points to three significant figures: for what is estimated, never for what is charged."""
    points = abs(amount_ppt) / PPT_PER_POINT
    if not points:
        return "0"
    decimals = max(0, 2 - _magnitude(points))
    text = decimal(points, decimals)
    return text if not decimals else text.rstrip("0").rstrip(".,")


def _magnitude(value: float) -> int:
    """0 from 1 to below 10, 1 from there to below 100, −1 below 1."""
    return int(f"{value:e}".rpartition("e")[2])


@register.filter
def meter_name(meter: str) -> str:
    return str(Meter(meter).label)


@register.filter
def meter_unit(meter: str) -> str:
    """What a rate of the meter is for."""
    if meter == Meter.PAGE:
        return gettext("points per page")
    if meter == Meter.CHARACTER:
        return gettext("points per million characters")
    return gettext("points per million tokens")


register.filter("of_meter", format_rate_of)
