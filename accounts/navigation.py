"""The site's sections as the top bar shows them."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Section:
    path: str
    label: Promise
    icon: str
    public: bool = False


SECTIONS = (
    Section("/playground/", _("Playground"), "message-square"),
    Section("/models/", _("Models"), "boxes", public=True),
    Section("/keys/", _("Keys"), "key-round"),
    Section("/usage/", _("Usage"), "chart-column"),
    Section("/team/", _("Team"), "users"),
)


def section_of(path: str) -> Section | None:
    return next((section for section in SECTIONS if path.startswith(section.path)), None)
