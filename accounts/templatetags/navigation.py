"""`{% sections as links %}`: what the reader may open, the page's own section marked."""

from __future__ import annotations

from dataclasses import dataclass

from django import template
from django.conf import settings
from django.template import Context

from accounts.navigation import SECTIONS, Section, section_of

register = template.Library()


@dataclass(frozen=True, slots=True)
class Link:
    section: Section
    current: bool


@register.simple_tag(takes_context=True)
def sections(context: Context) -> list[Link]:
    request, user = context.get("request"), context.get("user")
    here = section_of(request.path) if request else None
    signed_in = bool(user and user.is_authenticated)
    return [Link(section, section is here) for section in SECTIONS if signed_in or section.public]


@register.simple_tag
def sign_up_open() -> bool:
    return bool(settings.SIGN_UP == "open")
