"""A failed answer in plain words: what happened, and what to do now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Problem:
    title: str | Promise
    advice: str | Promise
    # The model server's or the gateway's own sentence, which may name the very parameter.
    detail: str = ""


UNREACHABLE = (_("The model server could not be reached."), _("Try again in a moment, or choose another model."))
BUSY = (_("The model is busy."), _("Try again in a moment, or choose another model."))
SLOW = (_("The model server took too long."), _("Try again, with a shorter message or lower max tokens."))
REFUSED = (_("The model refused this request."), _("Change what it names in the settings, then try again."))
INTERNAL = (
    _("Something went wrong on our side."),
    _("Try again. If it stays so, tell the operator the request id."),
)

BY_CODE = {
    "interrupted": (
        _("The server stopped before the answer was complete."),
        _("What had come is kept. Ask again for a whole answer."),
    ),
    "internal": INTERNAL,
    "upstream_unavailable": UNREACHABLE,
    "upstream_error": (_("The model server broke the answer off."), _("What had come is kept. Try again.")),
    "upstream_saturated": BUSY,
    "timeout": SLOW,
    "insufficient_quota": (
        _("Your team's points for this period are used up."),
        _("Wait for the reset, or ask an owner of the team."),
    ),
}
BY_STATUS = {
    400: REFUSED,
    403: (_("Your team may not use this model."), _("Choose another model.")),
    404: (_("The model server does not know this model."), _("Choose another model.")),
    413: (
        _("The conversation is too large for one request."),
        _("Start a new chat, or shorten the message."),
    ),
    422: REFUSED,
    429: (_("Too many requests at once."), _("Wait a moment, then try again.")),
    502: UNREACHABLE,
    503: BUSY,
    504: SLOW,
}


def explain(error: dict[str, Any], *, begun: bool = False) -> Problem:
    """`error` as a turn keeps it: status, message, code. `begun`: part of the answer had come."""
    code, status = error.get("code") or "", error.get("status") or 0
    if begun and code == "upstream_unavailable":
        code = "upstream_error"
    title, advice = BY_CODE.get(code) or BY_STATUS.get(status) or INTERNAL
    return Problem(title, advice, detail=error.get("message") or "")
