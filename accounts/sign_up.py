"""Who may sign up: everybody, whoever holds an invitation, or nobody."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest

from accounts.models import Invitation

SESSION_KEY = "invitation"


def remember_invitation(request: HttpRequest, invitation: Invitation) -> None:
    """Kept through signing up or in, so that the person comes back to it. The token is not: sessions are stored."""
    request.session[SESSION_KEY] = invitation.pk


def remembered_invitation(request: HttpRequest) -> Invitation | None:
    """The one whose link this browser opened, while it can be accepted."""
    id = request.session.get(SESSION_KEY)
    return Invitation.objects.open().filter(pk=id).select_related("team", "invited_by").first() if id else None


def may_sign_up(request: HttpRequest) -> bool:
    if settings.SIGN_UP == "open":
        return True
    return settings.SIGN_UP == "invite" and remembered_invitation(request) is not None


def may_sign_up_as(request: HttpRequest, email: str) -> bool:
    """Where an invitation is needed it admits the address it was sent to, not whoever was handed the link."""
    invited = remembered_invitation(request)
    return settings.SIGN_UP == "open" or (invited is not None and invited.email == email.strip().lower())
