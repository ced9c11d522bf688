"""What people type into the pages of accounts."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from accounts.keys import KeyTerms
from accounts.known_models import known_models
from accounts.members import KeysOfLeaver
from accounts.models import ApiKey, KeyEndpoint, Membership, PointsPeriod, Role, Team, User
from accounts.points import MAX_POINTS, PLACES, points_of, ppt_of
from accounts.rights import grantable_roles
from accounts.teams import TeamSettings, changed_lately

LIFETIMES = [
    ("", _("Never")),
    ("7", _("In 7 days")),
    ("30", _("In 30 days")),
    ("90", _("In 90 days")),
    ("365", _("In a year")),
]
GRACES = [
    ("0", _("Refuse it at once")),
    ("3600", _("Good for one more hour")),
    ("86400", _("Good for one more day")),
    ("259200", _("Good for three more days")),
    ("604800", _("Good for seven more days")),
]
LEAVERS_KEYS = [
    (KeysOfLeaver.REVOKE.value, _("Revoke them: programs that use them are refused at once")),
    (KeysOfLeaver.HAND_OVER.value, _("Hand them to the team: programs go on working")),
]
MAX_NETWORKS = 50
MAX_LIMIT = 1_000_000
# At the ends of the calendar a moment has no place in some zone.
FIRST_MOMENT, LAST_MOMENT = datetime(2000, 1, 1, tzinfo=UTC), datetime(2999, 12, 31, tzinfo=UTC)
MAX_PASTED = 20_000


def points_field(**options: Any) -> forms.DecimalField:
    return forms.DecimalField(
        min_value=0, max_value=MAX_POINTS, decimal_places=PLACES, max_digits=PLACES + 7, required=False, **options
    )


class KeyForm(forms.Form):
    """The terms of a key. Of a new one the lifetime is chosen, of an old one the day it ends."""

    name = forms.CharField(
        label=_("Name"),
        max_length=120,
        help_text=_("Where the key will live, so that you know later which one to revoke."),
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )
    models = forms.MultipleChoiceField(
        label=_("Models"), required=False, widget=forms.CheckboxSelectMultiple, help_text=_("None ticked: every model.")
    )
    endpoints = forms.MultipleChoiceField(
        label=_("API endpoints"),
        required=False,
        choices=KeyEndpoint.choices,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None ticked: every endpoint."),
    )
    networks = forms.CharField(
        label=_("Source addresses"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "placeholder": "203.0.113.0/24"}),
        help_text=_("Addresses or networks, one a line. Empty: from anywhere."),
    )
    rpm_limit = forms.IntegerField(
        label=_("Requests a minute"),
        required=False,
        min_value=0,
        max_value=MAX_LIMIT,
        help_text=_("Empty: the site's limit. 0: none."),
    )
    concurrency_limit = forms.IntegerField(
        label=_("Requests in flight"),
        required=False,
        min_value=0,
        max_value=MAX_LIMIT,
        help_text=_("Empty: the site's limit. 0: none."),
    )
    points_limit = points_field(
        label=_("Points a period"), help_text=_("Empty: only the team's limit holds. The period is the team's.")
    )
    portable = forms.BooleanField(
        label=_("Portable mode"),
        required=False,
        help_text=_("Requests are adapted to the model instead of failing; what was changed is named in x-adapted."),
    )

    def __init__(self, *args: Any, key: ApiKey | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        # A model that has left the catalog stays a choice of the keys that name it.
        ids = dict.fromkeys([*known_models(), *(key.models if key else [])])
        self.fields["models"].choices = [(id, id) for id in ids]  # type: ignore[attr-defined]

    def clean_networks(self) -> list[str]:
        wanted = self.cleaned_data["networks"].replace(",", " ").split()
        if len(wanted) > MAX_NETWORKS:
            raise forms.ValidationError(gettext("At most %(count)d networks.") % {"count": MAX_NETWORKS})
        return [_network(text) for text in wanted]

    def expires_at(self) -> datetime | None:
        raise NotImplementedError

    def terms(self) -> KeyTerms:
        data = self.cleaned_data
        return KeyTerms(
            expires_at=self.expires_at(),
            models=data["models"],
            endpoints=data["endpoints"],
            networks=data["networks"],
            rpm_limit=data["rpm_limit"],
            concurrency_limit=data["concurrency_limit"],
            # 0 is no limit here as everywhere.
            points_limit_ppt=ppt_of(data["points_limit"]) or None,
            portable=data["portable"],
        )


class NewKeyForm(KeyForm):
    lifetime = forms.ChoiceField(label=_("Expires"), choices=LIFETIMES, required=False)

    def __init__(self, *args: Any, proposed_days: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["lifetime"].initial = proposed = str(proposed_days or "")
        if proposed not in dict(LIFETIMES):
            in_days = gettext("In %(days)s days") % {"days": proposed}
            self.fields["lifetime"].choices = [*LIFETIMES, (proposed, in_days)]  # type: ignore[attr-defined]

    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["lifetime"]
        return timezone.now() + timedelta(days=int(days)) if days else None


class ChangeKeyForm(KeyForm):
    expires = forms.DateTimeField(
        label=_("Expires"),
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        validators=[MinValueValidator(FIRST_MOMENT), MaxValueValidator(LAST_MOMENT)],
        help_text=_("By the team's time. Empty: never."),
    )

    def expires_at(self) -> datetime | None:
        moment: datetime | None = self.cleaned_data["expires"]
        before: datetime | None = self.initial.get("expires")
        # The browser's field has no seconds: left as it was, the moment stays exact.
        return before if before and moment == before.replace(second=0, microsecond=0) else moment

    @classmethod
    def of(cls, key: ApiKey, *args: Any) -> ChangeKeyForm:
        return cls(
            *args,
            key=key,
            initial={
                "name": key.name,
                "models": key.models,
                "endpoints": key.endpoints,
                "networks": "\n".join(key.networks),
                "rpm_limit": key.rpm_limit,
                "concurrency_limit": key.concurrency_limit,
                "points_limit": points_of(key.points_limit_ppt),
                "portable": key.portable,
                "expires": key.expires_at,
            },
        )


class RotateForm(forms.Form):
    grace = forms.TypedChoiceField(
        label=_("The present secret"),
        choices=GRACES,
        coerce=int,
        help_text=_("Until then both secrets work. The key keeps its number, its limits and its history."),
    )


class LeakedKeyForm(forms.Form):
    secret = forms.CharField(
        label=_("The secret, or the text it is in"),
        max_length=MAX_PASTED,
        widget=forms.Textarea(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false", "placeholder": "rc-…"}),
    )


class InviteForm(forms.Form):
    email = forms.EmailField(label=_("E-mail address"), max_length=254)
    role = forms.TypedChoiceField(label=_("Role"), coerce=Role, initial=Role.MEMBER)

    def __init__(self, *args: Any, membership: Membership, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["role"].choices = [(role.value, role.label) for role in grantable_roles(membership)]  # type: ignore[attr-defined]


class RoleForm(forms.Form):
    role = forms.TypedChoiceField(label=_("Role"), coerce=Role)

    def __init__(self, *args: Any, membership: Membership, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["role"].choices = [(role.value, role.label) for role in grantable_roles(membership)]  # type: ignore[attr-defined]


class LeaverForm(forms.Form):
    """Somebody goes: what becomes of the keys he made. Without a choice they are revoked."""

    keys = forms.TypedChoiceField(
        label=_("Keys made by this person"),
        choices=LEAVERS_KEYS,
        coerce=KeysOfLeaver,
        initial=KeysOfLeaver.REVOKE.value,
        required=False,
        empty_value=KeysOfLeaver.REVOKE,
        widget=forms.RadioSelect,
    )


class TransferForm(forms.Form):
    to = forms.ModelChoiceField(
        label=_("New owner"), queryset=Membership.objects.none(), empty_label=_("Choose a member")
    )

    def __init__(self, *args: Any, membership: Membership, **options: Any) -> None:
        super().__init__(*args, **options)
        others = Membership.objects.filter(team_id=membership.team_id).exclude(pk=membership.pk).select_related("user")
        self.fields["to"].queryset = others  # type: ignore[attr-defined]
        self.fields["to"].label_from_instance = lambda member: str(member.user)  # type: ignore[attr-defined]


class ProfileForm(forms.Form):
    name = forms.CharField(
        label=_("Name"), max_length=120, required=False, help_text=_("How your teams see you. Empty: your address.")
    )


class NewTeamForm(forms.Form):
    name = forms.CharField(label=_("Name"), max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))


class TeamForm(forms.Form):
    """A team may tighten what the site grants it; only the site's staff widens it."""

    name = forms.CharField(label=_("Name"), max_length=120)
    time_zone = forms.ChoiceField(
        label=_("Time zone"), help_text=_("Days and months of limits and reports begin at its midnight.")
    )
    default_key_days = forms.IntegerField(
        label=_("New keys end after, in days"),
        required=False,
        min_value=1,
        max_value=3650,
        help_text=_("What the form of a new key proposes. Empty: no end."),
    )
    points_limit = points_field(label=_("Points a period"))
    points_period = forms.ChoiceField(label=_("Period of the points"), required=False)
    rpm_limit = forms.IntegerField(label=_("Requests a minute"), required=False, min_value=0, max_value=MAX_LIMIT)

    def __init__(self, data: QueryDict | None = None, *, team: Team, staff: bool) -> None:
        super().__init__(data, initial=_initial(team))
        self.team = team
        self.staff = staff
        zones = sorted(available_timezones() | {team.time_zone})
        self.fields["time_zone"].choices = [(zone, zone) for zone in zones]  # type: ignore[attr-defined]
        site = _("The site's (%(period)s)") % {"period": PointsPeriod(settings.TEAM_POINTS_PERIOD).label}
        self.fields["points_period"].choices = [("", site), *PointsPeriod.choices]  # type: ignore[attr-defined]
        # A shorter period with the same points is a wider limit.
        self.fields["points_period"].disabled = not staff
        for name, default in (
            ("points_limit", settings.TEAM_POINTS_LIMIT),
            ("rpm_limit", settings.RATE_LIMIT_TEAM_RPM),
        ):
            self.fields[name].help_text = _limit_help(default, staff=staff)

    def clean_time_zone(self) -> str:
        zone: str = self.cleaned_data["time_zone"]
        # At each midnight the points begin anew: a team that moved to where it is just striking had them every hour.
        moved = zone != self.team.time_zone and not self.staff
        if moved and self.team.has_points_limit and changed_lately(self.team, "time_zone"):
            raise forms.ValidationError(
                gettext("The zone was changed within the last day. Only staff changes it again.")
            )
        return zone

    def clean_points_limit(self) -> Decimal | None:
        current = points_of(self.team.points_limit_ppt)
        return self._tightened(
            self.cleaned_data["points_limit"], current, Decimal(str(settings.TEAM_POINTS_LIMIT or 0))
        )

    def clean_rpm_limit(self) -> int | None:
        return self._tightened(self.cleaned_data["rpm_limit"], self.team.rpm_limit, settings.RATE_LIMIT_TEAM_RPM)

    def _tightened[Limit: (int, Decimal)](
        self, wanted: Limit | None, current: Limit | None, site: Limit
    ) -> Limit | None:
        """The wanted limit, unless it is wider than both the present one and the site's. None is the site's, 0 none."""
        now, then = (site if limit is None else limit for limit in (current, wanted))
        if self.staff or then in (now, site) or _narrower(then, now) or _narrower(then, site):
            return wanted
        raise forms.ValidationError(gettext("Only the site's staff can widen this limit."))

    def settings(self) -> TeamSettings:
        data = self.cleaned_data
        return TeamSettings(
            name=data["name"],
            time_zone=data["time_zone"],
            default_key_days=data["default_key_days"],
            rpm_limit=data["rpm_limit"],
            points_limit_ppt=ppt_of(data["points_limit"]),
            points_period=data["points_period"],
        )


class DeleteAccountForm(LeaverForm):
    name = forms.CharField(
        label=_("Name that stays"),
        max_length=120,
        help_text=_(
            "Usage and keys keep this name, the audit log the names as they were. All else about you is removed."
        ),
    )
    confirm = forms.CharField(
        label=_("Your e-mail address, to confirm"), widget=forms.EmailInput(attrs={"autocomplete": "off"})
    )

    def __init__(self, data: QueryDict | None = None, *, user: User) -> None:
        super().__init__(data, initial={"name": user.name, "keys": KeysOfLeaver.REVOKE.value})
        self.user = user

    def clean_confirm(self) -> str:
        typed: str = self.cleaned_data["confirm"]
        if typed.strip().lower() != self.user.email.lower():
            raise forms.ValidationError(gettext("This is not the address of your account."))
        return typed


def _narrower(one: Decimal | int, other: Decimal | int) -> bool:
    """0 is no limit, the widest of all."""
    return one != 0 and (other == 0 or one < other)


def _initial(team: Team) -> dict[str, Any]:
    fields = ("name", "time_zone", "default_key_days", "rpm_limit", "points_period")
    return {name: getattr(team, name) for name in fields} | {"points_limit": points_of(team.points_limit_ppt)}


def _limit_help(default: object, *, staff: bool) -> str:
    site = gettext("Empty: the site's limit, %(limit)s. 0: none.") % {"limit": default or gettext("which is none")}
    widened = gettext("Only the site's staff can widen it.")
    return site if staff else f"{site} {widened}"


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise forms.ValidationError(gettext("“%(text)s” is no address and no network.") % {"text": text}) from None
