"""allauth's questions about accounts, answered by this site's settings."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django import forms
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext

from accounts.client_address import client_address
from accounts.sign_up import invitation_token, may_sign_up, may_sign_up_as


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
        """Back to the invitation that led here."""
        token = invitation_token(request)
        if token:
            return reverse("accounts:invitation", args=[token])
        url: str = super().get_login_redirect_url(request)
        return url

    def get_client_ip(self, request: HttpRequest) -> str:
        """For the throttles and the list of sessions: the same address as in the audit log."""
        return client_address(request)


class SocialAccountAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return may_sign_up_as(request, sociallogin.user.email or "")
