"""/team/: members, invitations, settings; making, switching and leaving teams."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import in_the_team_shown, right_required, team_required
from accounts.audit import Actor
from accounts.forms import InviteForm, LeaverForm, NewTeamForm, RoleForm, TeamForm, TransferForm
from accounts.invitations import InvitationRefused, invite, revoke_invitation
from accounts.members import (
    LastOwner,
    MembersChanged,
    change_role,
    is_alone,
    is_needed,
    remove_member,
    transfer_ownership,
)
from accounts.middleware import TeamRequest
from accounts.models import ApiKey, Membership, Role
from accounts.navigation import section_of
from accounts.rights import Right, grantable_roles, may, may_manage
from accounts.teams import TooManyTeams, change_team, choose_team, create_team


@right_required(Right.READ)
@require_GET
def team(request: TeamRequest) -> HttpResponse:
    return _members_page(request)


@right_required(Right.MANAGE_MEMBERS)
@in_the_team_shown
@require_POST
def send_invitation(request: TeamRequest) -> HttpResponse:
    form = InviteForm(request.POST, membership=request.membership)
    if not form.is_valid():
        return _members_page(request, invite_form=form, status=422)
    email = form.cleaned_data["email"]
    try:
        invite(
            team=request.team,
            email=email,
            role=form.cleaned_data["role"],
            invited_by=request.user,
            actor=Actor.of(request),
        )
    except InvitationRefused as refused:
        form.add_error("email", str(refused))
        return _members_page(request, invite_form=form, status=422)
    messages.success(request, gettext("An invitation was sent to %(email)s.") % {"email": email})
    return redirect("accounts:team")


@right_required(Right.MANAGE_MEMBERS)
@require_POST
def end_invitation(request: TeamRequest, invitation_id: int) -> HttpResponse:
    pending = request.team.invitations.pending().filter(role__in=grantable_roles(request.membership))
    revoke_invitation(invitation=get_object_or_404(pending, pk=invitation_id), actor=Actor.of(request))
    return redirect("accounts:team")


@right_required(Right.MANAGE_MEMBERS)
@require_POST
def set_role(request: TeamRequest, membership_id: int) -> HttpResponse:
    other = _other(request, membership_id)
    form = RoleForm(request.POST, membership=request.membership)
    if not form.is_valid():
        raise PermissionDenied
    try:
        change_role(membership=other, role=form.cleaned_data["role"], actor=Actor.of(request))
    except (LastOwner, MembersChanged):
        messages.error(request, gettext("The members have changed in the meantime. Look at them again."))
    return redirect("accounts:team")


@right_required(Right.MANAGE_MEMBERS)
@require_http_methods(["GET", "HEAD", "POST"])
def remove(request: TeamRequest, membership_id: int) -> HttpResponse:
    other = _other(request, membership_id)
    form = LeaverForm(request.POST if request.method == "POST" else None)
    if request.method != "POST" or not form.is_valid():
        return render(request, "accounts/remove_member.html", _leaver_context(other, form))
    try:
        remove_member(membership=other, keys=form.cleaned_data["keys"], actor=Actor.of(request))
    except (LastOwner, MembersChanged):
        messages.error(request, gettext("The members have changed in the meantime. Look at them again."))
    else:
        messages.success(request, gettext("%(person)s is no longer a member.") % {"person": other.user})
    return redirect("accounts:team")


@team_required
@in_the_team_shown
@require_http_methods(["GET", "HEAD", "POST"])
def leave(request: TeamRequest) -> HttpResponse:
    form = LeaverForm(request.POST if request.method == "POST" else None)
    context = _leaver_context(request.membership, form) | {
        "leaving": True,
        "alone": is_alone(request.membership),
        "is_needed": is_needed(request.membership),
    }
    if request.method != "POST" or not form.is_valid():
        return render(request, "accounts/remove_member.html", context)
    left = request.team.name
    try:
        remove_member(membership=request.membership, keys=form.cleaned_data["keys"], actor=Actor.of(request))
    except LastOwner:
        return render(request, "accounts/remove_member.html", context | {"is_needed": True}, status=409)
    except MembersChanged:
        messages.error(request, gettext("The members have changed in the meantime. Look at them again."))
        return redirect("accounts:team")
    messages.success(request, gettext("You have left %(team)s.") % {"team": left})
    return redirect("accounts:team")


@right_required(Right.CHANGE_SETTINGS)
@in_the_team_shown
@require_http_methods(["GET", "HEAD", "POST"])
def team_settings(request: TeamRequest) -> HttpResponse:
    form = TeamForm(request.POST or None, team=request.team, staff=request.user.is_staff)
    if request.method == "POST" and form.is_valid():
        change_team(team=request.team, to=form.settings(), actor=Actor.of(request))
        messages.success(request, gettext("Saved. It holds from the next request on."))
        return redirect("accounts:team_settings")
    context: dict[str, Any] = {"form": form}
    if may(request.membership, Right.MANAGE_OWNERS):
        context["transfer_form"] = TransferForm(membership=request.membership)
    return render(request, "accounts/team_settings.html", context, status=422 if form.is_bound else 200)


@right_required(Right.MANAGE_OWNERS)
@require_POST
def transfer(request: TeamRequest) -> HttpResponse:
    form = TransferForm(request.POST, membership=request.membership)
    if not form.is_valid():
        messages.error(request, gettext("Choose a member of the team."))
        return redirect("accounts:team_settings")
    try:
        transfer_ownership(owner=request.membership, to=form.cleaned_data["to"], actor=Actor.of(request))
    except MembersChanged:
        messages.error(request, gettext("The members have changed in the meantime. Look at them again."))
    else:
        messages.success(request, gettext("%(person)s owns the team now.") % {"person": form.cleaned_data["to"].user})
    return redirect("accounts:team")


@team_required
@require_http_methods(["GET", "HEAD", "POST"])
def new_team(request: TeamRequest) -> HttpResponse:
    form = NewTeamForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return render(request, "accounts/new_team.html", {"form": form})
    try:
        made = create_team(name=form.cleaned_data["name"], owner=request.user, actor=Actor.of(request))
    except TooManyTeams:
        form.add_error(None, gettext("You have made as many teams as this site allows. Its staff can make another."))
        return render(request, "accounts/new_team.html", {"form": form}, status=409)
    choose_team(request=request, team=made)
    return redirect("accounts:team")


@team_required
@require_POST
def switch(request: TeamRequest) -> HttpResponse:
    """To the same section of another of one's teams: what was open belongs to the one before."""
    wanted = request.POST.get("team", "")
    mine = Membership.objects.filter(user=request.user).select_related("team")
    chosen = get_object_or_404(mine, team_id=int(wanted) if wanted.isdecimal() and len(wanted) < 19 else 0)
    choose_team(request=request, team=chosen.team)
    section = section_of(request.POST.get("next", ""))
    return redirect(section.path if section else "accounts:team")


def _other(request: TeamRequest, membership_id: int) -> Membership:
    """A member whose role one may change and whom one may remove. Others are seen on the page, so the answer is 403."""
    members = request.team.memberships.select_related("team", "user")
    other = get_object_or_404(members, pk=membership_id)
    if not may_manage(request.membership, other):
        raise PermissionDenied
    return other


def _leaver_context(membership: Membership, form: LeaverForm) -> dict[str, Any]:
    keys = ApiKey.objects.usable().filter(team_id=membership.team_id, created_by_id=membership.user_id)
    return {"member": membership, "form": form, "keys": list(keys)}


def _members_page(request: TeamRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    members = list(request.team.memberships.select_related("user").order_by("created_at", "id"))
    for member in members:
        if may_manage(request.membership, member):
            member.role_form = RoleForm(membership=request.membership, initial={"role": member.role})  # type: ignore[attr-defined]
    if may(request.membership, Right.MANAGE_MEMBERS):
        context = {
            "invite_form": InviteForm(membership=request.membership, initial={"role": Role.MEMBER}),
            "invitations": list(request.team.invitations.pending().select_related("invited_by")),
            "grantable": grantable_roles(request.membership),
        } | context
    return render(request, "accounts/team.html", {"members": members} | context, status=status)
