"""A call that failed, as pages show it and as what is kept remembers it."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils.translation import gettext_lazy as _

from gateway.errors import CallError
from playground.problems import Problem, explain

LESS = _("Try again, with less at once.")
BY_CODE = {
    "document_encrypted": (_("This PDF is encrypted."), _("Save a copy without its password and use that.")),
    "document_unreadable": (_("This file is damaged and cannot be read."), _("Save it anew, or use another copy.")),
    "document_too_large": (_("This document is too large to be read."), _("Use a smaller one, or part of it.")),
    "request_too_large": (_("This is too large for one request."), LESS),
    "timeout": (_("The model server took too long."), LESS),
}
SAID = ("document_encrypted", "document_unreadable")
BY_STATUS = {
    400: (_("The model refused this request."), _("Change what it names, then try again.")),
    413: BY_CODE["request_too_large"],
    422: (_("The model refused this request."), _("Change what it names, then try again.")),
    504: BY_CODE["timeout"],
}


class CallFailed(Exception):
    """`request_id` is None where nothing was accepted, and so nothing recorded."""

    def __init__(self, error: CallError, request_id: uuid.UUID | None = None) -> None:
        super().__init__(error.message)
        self.kept: dict[str, Any] = {
            "status": error.status,
            # A model server's own words; PostgreSQL's text has no NUL.
            "message": error.message.replace("\x00", ""),
            "code": error.code,
        }
        if request_id is not None:
            self.kept["request_id"] = str(request_id)


def problem(code: str) -> dict[str, Any]:
    """What is kept of a failure of our own."""
    return {"status": 500, "message": "", "code": code}


def problem_of(error: dict[str, Any]) -> Problem:
    """`error` as `CallFailed.kept` has it."""
    known = BY_CODE.get(error.get("code") or "") or BY_STATUS.get(error.get("status") or 0)
    if known is None or error.get("code") == "insufficient_quota":
        return explain(error, begun=True)
    # Where the title says all there is to say, the gateway's own words would only say it again.
    detail = "" if error.get("code") in SAID else error.get("message") or ""
    return Problem(*known, detail=detail)
