"""The audit log as people read it: filtered, in words, and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.audit import Action
from accounts.models import AuditEntry, Role, Team
from accounts.points import points_of

# A cell that begins so would be run as a formula by a spreadsheet.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
COLUMNS = ("at", "actor_id", "actor", "action", "object_type", "object_id", "object", "details", "address")
FIELDS = {
    "name": _("name"),
    "role": _("role"),
    "expires_at": _("expires"),
    "models": _("models"),
    "endpoints": _("endpoints"),
    "networks": _("source addresses"),
    "rpm_limit": _("requests a minute"),
    "concurrency_limit": _("requests in flight"),
    "points_limit_ppt": _("points a period"),
    "points_period": _("period of the points"),
    "portable": _("portable mode"),
    "time_zone": _("time zone"),
    "default_key_days": _("lifetime of new keys, in days"),
    "key": _("key"),
    "keys": _("keys"),
    "from": _("from"),
    "to": _("to"),
    "grace_seconds": _("seconds of grace"),
    "invited_by": _("invited by"),
    "reason": _("reason"),
    "factor": _("factor"),
}
# What `details` holds under a name in words of ours, as people read it.
VALUES = {
    "factor": {
        "totp": _("authenticator app"),
        "webauthn": _("passkey"),
        "recovery_codes": _("recovery codes"),
        "openid": _("single sign-on"),
    },
    "reason": {"member removed": _("member removed")},
    "keys": {"revoke": _("all revoked"), "hand_over": _("handed to the team")},
}


class AuditFilter(forms.Form):
    action = forms.ChoiceField(label=_("What"), required=False)
    actor = forms.ChoiceField(label=_("Who"), required=False)
    since = forms.DateField(label=_("From"), required=False, widget=forms.DateInput(attrs={"type": "date"}))
    until = forms.DateField(label=_("To"), required=False, widget=forms.DateInput(attrs={"type": "date"}))

    def __init__(self, *args: Any, team: Team, **options: Any) -> None:
        super().__init__(*args, **options)
        self.entries = AuditEntry.objects.filter(team=team)
        # Distinct by number and last name seen; a log with the name of each change stays truthful, the filter short.
        people = dict(self.entries.order_by("at", "id").values_list("actor_id", "actor_name").distinct())
        chosen = [(str(id or 0), name) for id, name in sorted(people.items(), key=lambda person: person[1].lower())]
        self.fields["actor"].choices = [("", gettext("Everybody")), *chosen]  # type: ignore[attr-defined]
        self.fields["action"].choices = [("", gettext("Everything")), *Action.choices]  # type: ignore[attr-defined]

    def found(self) -> QuerySet[AuditEntry]:
        """What the filter leaves, the newest first; a filter that makes no sense leaves everything."""
        data = self.cleaned_data if self.is_valid() else {}
        entries = self.entries.order_by("-at", "-id")
        if data.get("action"):
            entries = entries.filter(action=data["action"])
        if data.get("actor"):
            entries = entries.filter(actor_id=int(data["actor"]) or None)
        if data.get("since"):
            entries = entries.filter(at__date__gte=data["since"])
        if data.get("until"):
            entries = entries.filter(at__date__lte=data["until"])
        return entries


def action_label(entry: AuditEntry) -> str:
    return str(Action(entry.action).label) if entry.action in Action else entry.action


def described(entry: AuditEntry) -> list[str]:
    """What changed, one line a thing: `role: Member → Admin`."""
    return [f"{FIELDS.get(name, name)}: {_told(name, value)}" for name, value in entry.details.items()]


def csv_lines(entries: QuerySet[AuditEntry]) -> Iterator[str]:
    yield _line(COLUMNS)
    for entry in entries.iterator(chunk_size=1000):
        yield _line(
            (
                entry.at.isoformat(),
                entry.actor_id or "",
                entry.actor_name,
                entry.action,
                entry.object_type,
                entry.object_id or "",
                entry.object_name,
                json.dumps(entry.details, ensure_ascii=False),
                entry.address,
            )
        )


def _told(name: str, value: Any) -> str:
    # A pair is before and after.
    if isinstance(value, list) and len(value) == 2 and name not in {"from", "to"}:
        return f"{_shown(name, value[0])} → {_shown(name, value[1])}"
    return _shown(name, value)


def _shown(name: str, value: Any) -> str:
    if value is None or value in ("", []):
        return "–"
    if name == "points_limit_ppt":
        return f"{points_of(value):f}"
    if name == "role" and value in Role:
        return str(Role(value).label)
    if name in VALUES and value in VALUES[name]:
        return str(VALUES[name][value])
    if isinstance(value, bool):
        return gettext("on") if value else gettext("off")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _line(cells: tuple[Any, ...]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow([_harmless(str(cell)) for cell in cells])
    return line.getvalue()


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell
