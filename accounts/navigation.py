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
    Section("/playground/ocr/", _("Documents"), "file-text"),
    Section("/playground/speech/", _("Speech"), "audio-lines"),
    Section("/playground/decisions/", _("Decisions"), "scale"),
    Section("/models/", _("Models"), "boxes", public=True),
    Section("/docs/", _("Docs"), "book-open", public=True),
    Section("/keys/", _("Keys"), "key-round"),
    Section("/usage/", _("Usage"), "chart-column"),
    Section("/team/", _("Team"), "users"),
)


def section_of(path: str) -> Section | None:
    """The one whose path goes furthest with this one."""
    found = [section for section in SECTIONS if path.startswith(section.path)]
    return max(found, key=lambda section: len(section.path), default=None)
