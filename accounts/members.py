"""Who is in a team, and as what. Every change is recorded; a team never loses its last owner."""

from __future__ import annotations

from enum import StrEnum

from django.db import transaction
from django.db.models import QuerySet

from accounts import key_epoch
from accounts.audit import Action, Actor, record
from accounts.invitations import withdraw_invitations_of
from accounts.keys import hand_over_keys_of, revoke_keys_of
from accounts.models import Membership, Role, Team, User
from accounts.rights import Right, grantable_roles, may


class LastOwner(Exception):
    """The team would be left without an owner; nothing was done."""


class MembersChanged(Exception):
    """Somebody left or has another role than was seen; nothing was done."""


class KeysOfLeaver(StrEnum):
    """What becomes of the keys that somebody made who goes."""

    REVOKE = "revoke"
    HAND_OVER = "hand_over"


def change_role(*, membership: Membership, role: Role, actor: Actor) -> None:
    with transaction.atomic():
        current = _locked(membership)
        if current.role == role:
            return
        if current.role == Role.OWNER and not _others(current).filter(role=Role.OWNER).exists():
            raise LastOwner
        details = {"role": [current.role, role.value]}
        record(actor=actor, action=Action.MEMBER_ROLE, team=current.team, object=current.user, details=details)
        _give(current, role, actor)
    key_epoch.bump()
    membership.refresh_from_db()


def remove_member(*, membership: Membership, keys: KeysOfLeaver, actor: Actor) -> None:
    """Take somebody out of the team. His keys are refused from the next request on, or are the team's from now."""
    with transaction.atomic():
        current = _locked(membership)
        leaving = actor.id == current.user_id
        if is_needed(current) or (is_alone(current) and not leaving):
            raise LastOwner
        _take_out(current, keys=keys, actor=actor, action=Action.MEMBER_LEFT if leaving else Action.MEMBER_REMOVED)
    key_epoch.bump()


def transfer_ownership(*, owner: Membership, to: Membership, actor: Actor) -> None:
    """`to` becomes an owner and `owner` an admin, in one step."""
    with transaction.atomic():
        giving, taking = _locked(owner), _locked(to)
        if giving.role != Role.OWNER or giving.team_id != taking.team_id:
            raise MembersChanged
        details = {"from": str(giving.user), "role": [taking.role, Role.OWNER.value]}
        record(actor=actor, action=Action.OWNER_TRANSFERRED, team=giving.team, object=taking.user, details=details)
        _give(taking, Role.OWNER, actor)
        _give(giving, Role.ADMIN, actor)
    key_epoch.bump()


def leave_all_teams(*, user: User, keys: KeysOfLeaver, actor: Actor) -> None:
    """For an account that ends. Raises LastOwner, changing nothing, while another team's members depend on him.

    Inside a transaction; the caller bumps the key epoch after it.
    """
    for membership in Membership.objects.filter(user=user).select_related("team").order_by("team_id"):
        current = _locked(membership)
        if not is_alone(current) and is_needed(current):
            raise LastOwner
        _take_out(current, keys=keys, actor=actor, action=Action.MEMBER_LEFT)


def sole_ownerships(user: User) -> list[Team]:
    """Teams with other members that would be left without an owner."""
    memberships = Membership.objects.filter(user=user).select_related("team")
    return [one.team for one in memberships if not is_alone(one) and is_needed(one)]


def _locked(membership: Membership) -> Membership:
    """The membership as it is now, its team locked: changes of one team's members happen one after another.

    What was decided by the role that was seen is not done to another one: an admin may not manage an owner.
    """
    Team.objects.select_for_update().get(pk=membership.team_id)
    current = Membership.objects.select_related("team", "user").filter(pk=membership.pk).first()
    if current is None or current.role != membership.role:
        raise MembersChanged
    return current


def is_alone(membership: Membership) -> bool:
    return not _others(membership).exists()


def is_needed(membership: Membership) -> bool:
    """The last owner of others, or the one person of the team that everybody has of his own."""
    if is_alone(membership):
        return membership.team.personal_of_id == membership.user_id
    return membership.role == Role.OWNER and not _others(membership).filter(role=Role.OWNER).exists()


def _others(membership: Membership) -> QuerySet[Membership]:
    return Membership.objects.filter(team_id=membership.team_id).exclude(pk=membership.pk)


def _give(membership: Membership, role: Role, actor: Actor) -> None:
    Membership.objects.filter(pk=membership.pk).update(role=role)
    grantable = grantable_roles(Membership(role=role))
    withdraw_invitations_of(team=membership.team, user=membership.user, except_to=grantable, actor=actor)


def _take_out(membership: Membership, *, keys: KeysOfLeaver, actor: Actor, action: Action) -> None:
    team, user = membership.team, membership.user
    alone = is_alone(membership)
    # To hand a key on is to keep it alive: whoever goes himself must be allowed to make one, and somebody must be left.
    may_hand_over = (actor.id != user.pk or may(membership, Right.CREATE_KEYS)) and not alone
    chosen = keys if may_hand_over else KeysOfLeaver.REVOKE
    if chosen == KeysOfLeaver.HAND_OVER:
        hand_over_keys_of(team=team, user=user, actor=actor)
    else:
        revoke_keys_of(team=team, user=None if alone else user, actor=actor)
    details = {"role": membership.role, "keys": chosen.value}
    Membership.objects.filter(pk=membership.pk).delete()
    withdraw_invitations_of(team=team, user=user, except_to=(), actor=actor)
    # It is the others' now: whoever has no team left gets a new one, and not this one back as its owner.
    Team.objects.filter(pk=team.pk, personal_of=user).update(personal_of=None)
    record(actor=actor, action=action, team=team, object=user, details=details)
