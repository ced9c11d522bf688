"""Limits as the pages of keys and teams print them."""

from __future__ import annotations

from decimal import Decimal

from django import template
from django.utils.translation import gettext

from accounts.points import points_of

register = template.Library()


@register.filter
def points_limit(ppt: int | None) -> Decimal | None:
    return points_of(ppt)


@register.filter
def limit(own: int | None, site: int) -> str:
    """The limit that holds: its own, or the site's; 0 is none."""
    holds = site if own is None else own
    return str(holds) if holds else gettext("no limit")
