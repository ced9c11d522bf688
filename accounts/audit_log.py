"""The audit log as people read it: filtered, in words, and as CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.db.models import Max, Q, QuerySet
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.audit import Action
from accounts.models import AuditEntry, Role, Team
from accounts.points import points_of
from accounts.spreadsheet import BYTE_ORDER_MARK, Cells, csv_text

ENTRIES_AT_A_TIME = 1_000
# Nothing happened before, and the ends of the calendar have no midnight in some zones.
FIRST_DAY, LAST_DAY = date(2000, 1, 1), date(2999, 12, 31)
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
    "change": _("change"),
    "endpoint": _("endpoint"),
    "address": _("address"),
    "statement readers": _("readers of the statements"),
}
# What `details` holds under a name in words of ours, as people read it.
VALUES = {
    "factor": {
        "totp": _("authenticator app"),
        "webauthn": _("passkey"),
        "recovery_codes": _("recovery codes"),
        "openid": _("single sign-on"),
    },
    "reason": {"member removed": _("member removed"), "inviter": _("whoever sent it may no longer invite")},
    "keys": {"revoke": _("all revoked"), "hand_over": _("handed to the team")},
    "change": {
        "endpoint added": _("endpoint added"),
        "endpoint switched on": _("endpoint switched on"),
        "endpoint switched off": _("endpoint switched off"),
        "endpoint deleted": _("endpoint deleted"),
    },
}


class AuditFilter(forms.Form):
    action = forms.ChoiceField(label=_("What"), required=False)
    actor = forms.ChoiceField(label=_("Who"), required=False)
    since = forms.DateField(label=_("From"), required=False, widget=forms.DateInput(attrs={"type": "date"}))
    until = forms.DateField(label=_("To"), required=False, widget=forms.DateInput(attrs={"type": "date"}))

    def __init__(self, *args: Any, team: Team, **options: Any) -> None:
        super().__init__(*args, **options)
        self.team = team
        self.entries = AuditEntry.objects.filter(team=team)
        people = sorted(_people(self.entries), key=lambda person: person[1].lower())
        chosen = [(str(id), name) for id, name in people]
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
            entries = entries.filter(at__gte=self._midnight(data["since"]))
        if data.get("until"):
            entries = entries.filter(at__lt=self._midnight(data["until"], days=1))
        return entries

    def _midnight(self, day: date, *, days: int = 0) -> datetime:
        """In the team's zone, so many days later."""
        bounded = min(max(day, FIRST_DAY), LAST_DAY)
        return datetime.combine(bounded + timedelta(days=days), time.min, tzinfo=ZoneInfo(self.team.time_zone))


def action_label(entry: AuditEntry) -> str:
    return str(Action(entry.action).label) if entry.action in Action else entry.action


def described(entry: AuditEntry) -> list[str]:
    """What changed, one line a thing: `role: Member → Admin`."""
    return [f"{FIELDS.get(name, name)}: {_told(name, value)}" for name, value in entry.details.items()]


def csv_parts(entries: QuerySet[AuditEntry]) -> Iterator[str]:
    """The whole of it, read a stretch at a time: its size costs neither memory nor a query that waits for a reader."""
    yield BYTE_ORDER_MARK + csv_text([COLUMNS])
    part = list(entries[:ENTRIES_AT_A_TIME])
    while part:
        yield csv_text(map(_cells, part))
        last = part[-1]
        older = Q(at__lt=last.at) | Q(at=last.at, id__lt=last.pk)
        part = list(entries.filter(older)[:ENTRIES_AT_A_TIME])


def _people(entries: QuerySet[AuditEntry]) -> Iterator[tuple[int, str]]:
    """Whoever did something, each under the last name he had; 0 is everything that no person did."""
    latest = entries.order_by().values("actor_id").annotate(latest=Max("id"))
    for id, name in entries.filter(pk__in=latest.values("latest")).values_list("actor_id", "actor_name"):
        yield (id, name) if id else (0, gettext("No person: keys and the command line"))


def _cells(entry: AuditEntry) -> Cells:
    return (
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
    if isinstance(value, str) and value in VALUES.get(name, {}):
        return str(VALUES[name][value])
    if isinstance(value, bool):
        return gettext("on") if value else gettext("off")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
