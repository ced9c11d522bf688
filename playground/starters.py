"""First messages that show what a model is good for."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Starter:
    icon: str
    title: str | Promise
    prompt: str | Promise


STARTERS = (
    Starter(
        "code", _("Write code"), _("Write a Python function that merges overlapping time ranges, with three tests.")
    ),
    Starter(
        "sigma",
        _("Work something out"),
        _("Derive the quadratic formula step by step, with the formulas set as mathematics."),
    ),
    Starter(
        "table-2", _("Compare"), _("Compare SQLite and PostgreSQL for a small team's web application, as a table.")
    ),
    Starter(
        "languages",
        _("Translate"),
        _("Translate into Chinese and English, and explain the hard words: Festina lente."),
    ),
)
