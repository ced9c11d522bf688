"""`{% sections as links %}`: what the reader may open, the page's own section marked."""

from __future__ import annotations

from dataclasses import dataclass

from django import template
from django.template import Context

from accounts import rights
from accounts.models import Membership
from accounts.navigation import SECTIONS, Section, section_of
from accounts.sign_up import may_sign_up

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


@register.simple_tag(takes_context=True)
def sign_up_open(context: Context) -> bool:
    return may_sign_up(context["request"])


@register.simple_tag(takes_context=True)
def my_memberships(context: Context) -> list[Membership]:
    """The teams of the reader, as they were loaded with the present one."""
    request = context.get("request")
    if not (request and getattr(request, "membership", None)):
        return []
    return list(getattr(request, "memberships", []))


@register.filter
def may(membership: Membership, right: str) -> bool:
    """`{% if request.membership|may:"MANAGE_MEMBERS" %}`"""
    return rights.may(membership, rights.Right[right])
