"""The audit log: every change to a team, its people and its keys is written with the change itself.

The verbs that change something (`accounts.keys`, `accounts.members`, …) take an `Actor` and record what they
did in the same transaction, so no page, command or API call can forget to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from django.db import models
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.client_address import client_address
from accounts.models import ApiKey, AuditEntry, Invitation, Team, User


class Action(models.TextChoices):
    KEY_CREATED = "key.created", _("Key created")
    KEY_CHANGED = "key.changed", _("Key changed")
    KEY_ROTATED = "key.rotated", _("Key rotated")
    KEY_DISABLED = "key.disabled", _("Key disabled")
    KEY_ENABLED = "key.enabled", _("Key enabled")
    KEY_REVOKED = "key.revoked", _("Key revoked")
    KEY_HANDED_OVER = "key.handed_over", _("Key handed to the team")
    TEAM_CREATED = "team.created", _("Team created")
    TEAM_CHANGED = "team.changed", _("Team settings changed")
    INVITATION_SENT = "invitation.sent", _("Invitation sent")
    INVITATION_REVOKED = "invitation.revoked", _("Invitation revoked")
    MEMBER_JOINED = "member.joined", _("Member joined")
    MEMBER_ROLE = "member.role", _("Role changed")
    MEMBER_REMOVED = "member.removed", _("Member removed")
    MEMBER_LEFT = "member.left", _("Member left")
    OWNER_TRANSFERRED = "owner.transferred", _("Ownership transferred")
    SIGNED_IN = "account.signed_in", _("Signed in")
    SIGN_IN_FAILED = "account.sign_in_failed", _("Sign-in failed")
    PASSWORD_CHANGED = "account.password", _("Password changed")
    EMAIL_CHANGED = "account.email", _("E-mail address changed")
    FACTOR_ADDED = "account.factor_added", _("Sign-in factor added")
    FACTOR_REMOVED = "account.factor_removed", _("Sign-in factor removed")
    ACCOUNT_DELETED = "account.deleted", _("Account deleted")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does it, and from which network address ("" for the machine itself)."""

    id: int | None
    name: str
    address: str = ""

    @classmethod
    def of(cls, request: HttpRequest) -> Self:
        user = request.user
        if not user.is_authenticated:
            return cls(None, "", client_address(request))
        return cls(user.pk, str(user), client_address(request))


SYSTEM = Actor(None, "command line")


def record(
    *,
    actor: Actor,
    action: Action,
    team: Team | None,
    object: ApiKey | Team | User | Invitation,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry. `details` must be JSON, and no secret: give names, numbers, and values before and after."""
    AuditEntry.objects.create(
        team=team,
        actor_id=actor.id,
        actor_name=actor.name[:254],
        action=action,
        object_type=object._meta.model_name or "",
        object_id=object.pk,
        object_name=str(object)[:254],
        details=dict(details or {}),
        address=actor.address,
    )
