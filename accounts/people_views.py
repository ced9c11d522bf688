"""A person's own pages: the profile, the end of an account, an invitation."""

from __future__ import annotations

from http import HTTPStatus
from typing import cast

from allauth.account.adapter import get_adapter
from allauth.account.decorators import reauthentication_required
from allauth.socialaccount.helpers import render_authentication_error
from allauth.socialaccount.providers.openid_connect import views as openid_connect
from allauth.usersessions.models import UserSession
from django.contrib import messages
from django.contrib.auth import logout
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST
from requests import RequestException

from accounts.access import public, team_required
from accounts.account_end import delete_account
from accounts.audit import Actor
from accounts.forms import DeleteAccountForm, ProfileForm
from accounts.invitations import WrongAddress, accept, find_invitation, is_for
from accounts.members import LastOwner, sole_ownerships
from accounts.middleware import TeamRequest
from accounts.models import Invitation, Membership
from accounts.sign_up import remember_invitation, remembered_invitation
from accounts.teams import choose_team


@public
def oidc_sign_in(request: HttpRequest, provider_id: str) -> HttpResponse:
    """allauth's view, which takes it that the provider answers."""
    try:
        return cast(HttpResponse, openid_connect.login(request, provider_id))
    except RequestException as error:
        page: HttpResponse = render_authentication_error(request, provider_id, exception=error)
        page.status_code = HTTPStatus.BAD_GATEWAY
        return page


@team_required
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: TeamRequest) -> HttpResponse:
    form = ProfileForm(request.POST or None, initial={"name": request.user.name})
    if request.method == "POST" and form.is_valid():
        request.user.name = form.cleaned_data["name"]
        request.user.save(update_fields=["name"])
        messages.success(request, gettext("Saved."))
        return redirect("accounts:profile")
    return render(request, "accounts/profile.html", {"form": form})


@team_required
@require_POST
def end_session(request: TeamRequest, session_id: int) -> HttpResponse:
    """Sign out one browser of one's own."""
    get_object_or_404(UserSession, user=request.user, pk=session_id).end()
    return redirect("usersessions_list")


@team_required
@reauthentication_required  # type: ignore[untyped-decorator]
@require_http_methods(["GET", "HEAD", "POST"])
def end_account(request: TeamRequest) -> HttpResponse:
    form = DeleteAccountForm(request.POST or None, user=request.user)
    context = {"form": form, "sole_ownerships": sole_ownerships(request.user)}
    if request.method != "POST" or not form.is_valid():
        return render(request, "accounts/delete_account.html", context)
    try:
        delete_account(
            user=request.user,
            name=form.cleaned_data["name"],
            keys=form.cleaned_data["keys"],
            actor=Actor.of(request),
        )
    except LastOwner:
        return render(request, "accounts/delete_account.html", context, status=409)
    logout(request)
    messages.success(request, gettext("Your account is deleted."))
    return redirect("account_login")


@public
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    found = find_invitation(token)
    if found is None:
        raise Http404
    if found.accepted_at or found.revoked_at or found.has_expired:
        return _invitation_page(request, found, status=410)
    if not request.user.is_authenticated:
        # The link was read in that mailbox: whoever signs up with the address now has shown it is his.
        get_adapter().stash_verified_email(request, found.email)
        remember_invitation(request, found)
        return _invitation_page(request, found)
    return _answered(request, found)


@team_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def invitation_after_sign_in(request: TeamRequest) -> HttpResponse:
    """The invitation whose link led this browser to sign in or up."""
    found = remembered_invitation(request)
    return _answered(request, found) if found else redirect("accounts:team")


def _answered(request: HttpRequest, found: Invitation) -> HttpResponse:
    assert request.user.is_authenticated
    if request.method != "POST":
        return _invitation_page(request, found, wrong_address=not is_for(found, request.user))
    return _accepted(request, found)


def _accepted(request: HttpRequest, found: Invitation) -> HttpResponse:
    assert request.user.is_authenticated
    try:
        membership = accept(invitation=found, user=request.user, actor=Actor.of(request))
    except WrongAddress:
        return _invitation_page(request, found, wrong_address=True, status=403)
    if membership is None:
        found.refresh_from_db()
        return _invitation_page(request, found, status=410)
    choose_team(request=request, team=found.team)
    return redirect("accounts:team")


def _invitation_page(
    request: HttpRequest, found: Invitation, *, wrong_address: bool = False, status: int = 200
) -> HttpResponse:
    member = request.user.is_authenticated and Membership.objects.filter(team=found.team, user=request.user).exists()
    context = {"invitation": found, "wrong_address": wrong_address, "is_member": member}
    return render(request, "accounts/invitation.html", context, status=status)
