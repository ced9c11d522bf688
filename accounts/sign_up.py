"""Who may sign up: everybody, whoever holds an invitation, or nobody."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest

from accounts.invitations import find_invitation
from accounts.models import Invitation

SESSION_KEY = "invitation"


def remember_invitation(request: HttpRequest, token: str) -> None:
    """Kept through signing up or in, so that the person comes back to it."""
    request.session[SESSION_KEY] = token


def remembered_invitation(request: HttpRequest) -> Invitation | None:
    token = request.session.get(SESSION_KEY)
    found = find_invitation(token) if token else None
    return found if found and Invitation.objects.open().filter(pk=found.pk).exists() else None


def invitation_token(request: HttpRequest) -> str | None:
    return request.session.get(SESSION_KEY) if remembered_invitation(request) else None


def may_sign_up(request: HttpRequest) -> bool:
    if settings.SIGN_UP == "open":
        return True
    return settings.SIGN_UP == "invite" and remembered_invitation(request) is not None


def may_sign_up_as(request: HttpRequest, email: str) -> bool:
    """Where an invitation is needed it admits the address it was sent to, not whoever was handed the link."""
    invited = remembered_invitation(request)
    return settings.SIGN_UP == "open" or (invited is not None and invited.email == email.strip().lower())
