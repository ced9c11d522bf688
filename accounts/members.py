"""Who is in a team, and as what. Every change is recorded; a team never loses its last owner."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from django.db import transaction

from accounts import key_epoch
from accounts.audit import Action, Actor, record
from accounts.keys import hand_over_keys_of, revoke_keys_of
from accounts.models import Membership, Role, Team, User


class LastOwner(Exception):
    """The team would be left without an owner; nothing was done."""


class NotAMember(Exception):
    """The person is no longer in the team; nothing was done."""


class KeysOfLeaver(StrEnum):
    """What becomes of the keys that somebody made who goes."""

    REVOKE = "revoke"
    HAND_OVER = "hand_over"


def change_role(*, membership: Membership, role: Role, actor: Actor) -> None:
    with transaction.atomic():
        current = _locked(membership)
        if current.role == role:
            return
        if current.role == Role.OWNER:
            _another_owner(current)
        details = {"role": [current.role, role.value]}
        Membership.objects.filter(pk=current.pk).update(role=role)
        record(actor=actor, action=Action.MEMBER_ROLE, team=current.team, object=current.user, details=details)
    key_epoch.bump()
    membership.refresh_from_db()


def remove_member(*, membership: Membership, keys: KeysOfLeaver, actor: Actor) -> None:
    """Take somebody out of the team. His keys are refused from the next request on, or are the team's from now."""
    with transaction.atomic():
        current = _locked(membership)
        if current.role == Role.OWNER:
            _another_owner(current)
        leaving = actor.id == current.user_id
        _take_out(current, keys=keys, actor=actor, action=Action.MEMBER_LEFT if leaving else Action.MEMBER_REMOVED)
    key_epoch.bump()


def transfer_ownership(*, owner: Membership, to: Membership, actor: Actor) -> None:
    """`to` becomes an owner and `owner` an admin, in one step."""
    with transaction.atomic():
        giving, taking = _locked(owner), _locked(to)
        if giving.role != Role.OWNER or giving.team_id != taking.team_id:
            raise NotAMember
        Membership.objects.filter(pk=taking.pk).update(role=Role.OWNER)
        Membership.objects.filter(pk=giving.pk).update(role=Role.ADMIN)
        details = {"from": str(giving.user), "role": [taking.role, Role.OWNER.value]}
        record(actor=actor, action=Action.OWNER_TRANSFERRED, team=giving.team, object=taking.user, details=details)
    key_epoch.bump()


def leave_all_teams(*, user: User, keys: KeysOfLeaver, actor: Actor) -> None:
    """For an account that ends. Raises LastOwner, changing nothing, while another team's members depend on him.

    Inside a transaction; the caller bumps the key epoch after it.
    """
    for membership in Membership.objects.filter(user=user).select_related("team").order_by("team_id"):
        current = _locked(membership)
        alone = not Membership.objects.filter(team_id=current.team_id).exclude(pk=current.pk).exists()
        if current.role == Role.OWNER and not alone:
            _another_owner(current)
        # Of a team that nobody is left in no key goes on working.
        chosen = KeysOfLeaver.REVOKE if alone else keys
        _take_out(current, keys=chosen, actor=actor, action=Action.MEMBER_LEFT)


def sole_ownerships(user: User) -> list[Team]:
    """Teams with other members that would be left without an owner."""
    owned = Team.objects.filter(memberships__user=user, memberships__role=Role.OWNER)
    others = Membership.objects.exclude(user=user)
    return [
        team
        for team in owned
        if others.filter(team=team).exists() and not others.filter(team=team, role=Role.OWNER).exists()
    ]


def _locked(membership: Membership) -> Membership:
    """The membership as it is now, its team locked: changes of one team's members happen one after another."""
    Team.objects.select_for_update().get(pk=membership.team_id)
    current = Membership.objects.select_related("team", "user").filter(pk=membership.pk).first()
    if current is None:
        raise NotAMember
    return current


def _another_owner(membership: Membership) -> None:
    owners = Membership.objects.filter(team_id=membership.team_id, role=Role.OWNER).exclude(pk=membership.pk)
    if not owners.exists():
        raise LastOwner


def _take_out(membership: Membership, *, keys: KeysOfLeaver, actor: Actor, action: Action) -> None:
    team, user = membership.team, membership.user
    settle: Any = hand_over_keys_of if keys == KeysOfLeaver.HAND_OVER else revoke_keys_of
    settle(team=team, user=user, actor=actor)
    details = {"role": membership.role, "keys": keys.value}
    Membership.objects.filter(pk=membership.pk).delete()
    record(actor=actor, action=action, team=team, object=user, details=details)
