"""What happens to accounts, heard from allauth and written to the audit log of the person."""

from __future__ import annotations

from typing import Any

from allauth.account import signals as account
from allauth.mfa import signals as mfa
from allauth.socialaccount import signals as social
from django.contrib.auth.signals import user_login_failed
from django.dispatch import Signal
from django.http import HttpRequest

from accounts.audit import Action, Actor, record
from accounts.client_address import client_address
from accounts.models import User


def connect() -> None:
    heard: list[tuple[Signal, Action]] = [
        (account.user_logged_in, Action.SIGNED_IN),
        (account.password_set, Action.PASSWORD_CHANGED),
        (account.password_changed, Action.PASSWORD_CHANGED),
        (account.password_reset, Action.PASSWORD_CHANGED),
        (account.email_changed, Action.EMAIL_CHANGED),
        (mfa.authenticator_added, Action.FACTOR_ADDED),
        (mfa.authenticator_removed, Action.FACTOR_REMOVED),
    ]
    for signal, action in heard:
        signal.connect(_recorder(action), weak=False, dispatch_uid=f"audit-{action}-{id(signal)}")
    social.social_account_added.connect(_connected, dispatch_uid="audit-connected")
    social.social_account_removed.connect(_disconnected, dispatch_uid="audit-disconnected")
    user_login_failed.connect(_failed, dispatch_uid="audit-login-failed")


def _recorder(action: Action) -> Any:
    def write(*, request: HttpRequest, user: User, **kwargs: Any) -> None:
        _note(action, request, user, _details(kwargs))

    return write


def _connected(*, request: HttpRequest, sociallogin: Any, **kwargs: Any) -> None:
    _note(Action.FACTOR_ADDED, request, sociallogin.user, {"factor": "openid"})


def _disconnected(*, request: HttpRequest, socialaccount: Any, **kwargs: Any) -> None:
    _note(Action.FACTOR_REMOVED, request, socialaccount.user, {"factor": "openid"})


def _note(action: Action, request: HttpRequest, user: User, details: dict[str, str]) -> None:
    """The person did it to himself."""
    actor = Actor(user.pk, str(user), client_address(request))
    record(actor=actor, action=action, team=None, object=user, details=details)


def _details(given: dict[str, Any]) -> dict[str, str]:
    if "authenticator" in given:
        return {"factor": str(given["authenticator"].type)}
    if "to_email_address" in given:
        return {"from": str(given.get("from_email_address") or ""), "to": str(given["to_email_address"].email)}
    return {}


def _failed(*, credentials: dict[str, Any], request: HttpRequest | None = None, **kwargs: Any) -> None:
    """Only for an address that has an account: what strangers type is not kept, it may be a password."""
    user = User.objects.filter(email__iexact=str(credentials.get("email") or "")).first()
    if user and request:
        actor = Actor(None, "", client_address(request))
        record(actor=actor, action=Action.SIGN_IN_FAILED, team=None, object=user)
