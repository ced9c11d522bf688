"""What people type into the pages of accounts."""

from __future__ import annotations

from datetime import datetime, timedelta

from django import forms
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

LIFETIMES = [
    ("", _("Never")),
    ("7", _("In 7 days")),
    ("30", _("In 30 days")),
    ("90", _("In 90 days")),
    ("365", _("In a year")),
]


class NewKeyForm(forms.Form):
    name = forms.CharField(
        label=_("Name"),
        max_length=120,
        help_text=_("Where the key will live, so that you know later which one to revoke."),
        widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True}),
    )
    lifetime = forms.ChoiceField(label=_("Expires"), choices=LIFETIMES, required=False)

    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["lifetime"]
        return timezone.now() + timedelta(days=int(days)) if days else None
