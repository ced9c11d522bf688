"""What was changed of a request to suit the model, in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.utils.translation import gettext as _

from playground.asking import PICTURES_LEFT_OUT


def explain_changes(changes: Iterable[str]) -> Iterator[str]:
    """`changes` are portable mode's short words, as `x-adapted` lists them, and the chat's own."""
    for change in changes:
        name, _colon, what = change.partition(":")
        before, _arrow, after = what.partition("->")
        if change == PICTURES_LEFT_OUT:
            yield _("Pictures were left out: this model reads text only.")
        elif change == "reasoning_effort-removed":
            yield _("The effort was left out: this model has no separate thinking.")
        elif name == "reasoning_effort" and after.startswith("enable_thinking"):
            yield (
                _("Effort %s turned thinking on.") % before
                if after.endswith("true")
                else _("Effort none turned thinking off.")
            )
        elif name == "reasoning_effort":
            yield _("Effort %(before)s was sent as %(after)s, the nearest that this model takes.") % {
                "before": before,
                "after": after,
            }
        else:
            yield _("Adapted to the model: %s.") % change
