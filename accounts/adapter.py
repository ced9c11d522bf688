"""allauth's questions about accounts, answered by this site's settings."""

from __future__ import annotations

import logging
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django import forms
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext

from accounts.client_address import client_address
from accounts.sign_up import may_sign_up, may_sign_up_as, remembered_invitation

log = logging.getLogger(__name__)


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return may_sign_up(request)

    def clean_email(self, email: str) -> str:
        checked: str = super().clean_email(email)
        # Asked by every form with an address; only signing up depends on whose it is.
        page = self.request.resolver_match if self.request else None
        signing_up = page is not None and page.url_name in {"account_signup", "socialaccount_signup"}
        if signing_up and not may_sign_up_as(self.request, checked):
            raise forms.ValidationError(gettext("Your invitation was sent to another address."))
        return checked

    def get_login_redirect_url(self, request: HttpRequest) -> str:
        return _invitation_url(request) or str(super().get_login_redirect_url(request))

    def get_signup_redirect_url(self, request: HttpRequest) -> str:
        return _invitation_url(request) or str(super().get_signup_redirect_url(request))

    def get_client_ip(self, request: HttpRequest) -> str:
        """For the throttles and the list of sessions: the same address as in the audit log."""
        return client_address(request)


def _invitation_url(request: HttpRequest) -> str | None:
    """Back to the invitation that led here."""
    return reverse("accounts:remembered_invitation") if remembered_invitation(request) else None


class SocialAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return may_sign_up_as(request, sociallogin.user.email or "")

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> Any:
        user = super().populate_user(request, sociallogin, data)
        user.name = str(data.get("name") or "")[:120]
        return user

    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """The provider's token has done its work: a sign-in that waits for more is kept without it."""
        sociallogin.token = None

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, **kwargs: Any
    ) -> None:
        log.warning("signing in with the OpenID Connect provider failed: %s", exception or error)
