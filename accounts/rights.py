"""What each role may do. One table: pages, the gateway, docs/rights.md and a test read the same one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from django.core.exceptions import PermissionDenied

from accounts.models import ApiKey, ApiKeyQuerySet, Membership, Role


class Right(StrEnum):
    READ = "see the team's keys, members, usage and requests"
    USE_MODELS = "use the models in the playground and with the browser session"
    CREATE_KEYS = "make keys"
    MANAGE_OWN_KEYS = "change, rotate, disable and revoke keys one made oneself"
    MANAGE_ALL_KEYS = "do so with every key of the team"
    MANAGE_MEMBERS = "invite, change roles and remove, except owners"
    CHANGE_SETTINGS = "change the team's settings"
    READ_AUDIT = "read and export the audit log"
    MANAGE_OWNERS = "make, change and remove owners; transfer ownership"


_VIEWER = frozenset({Right.READ})
_MEMBER = _VIEWER | {Right.USE_MODELS, Right.CREATE_KEYS, Right.MANAGE_OWN_KEYS}
_ADMIN = _MEMBER | {Right.MANAGE_ALL_KEYS, Right.MANAGE_MEMBERS, Right.CHANGE_SETTINGS, Right.READ_AUDIT}

RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.OWNER: _ADMIN | {Right.MANAGE_OWNERS},
    Role.ADMIN: _ADMIN,
    Role.MEMBER: _MEMBER,
    Role.VIEWER: _VIEWER,
}


def may(membership: Membership, right: Right) -> bool:
    return right in RIGHTS[Role(membership.role)]


def require(membership: Membership | None, right: Right) -> None:
    """Raises PermissionDenied (403)."""
    if membership is None or not may(membership, right):
        raise PermissionDenied


def manageable_keys(membership: Membership) -> ApiKeyQuerySet:
    """The keys a member may change, rotate and revoke; a key outside is to him as if it did not exist."""
    keys = ApiKey.objects.filter(team_id=membership.team_id)
    if may(membership, Right.MANAGE_ALL_KEYS):
        return keys
    if may(membership, Right.MANAGE_OWN_KEYS):
        return keys.filter(created_by_id=membership.user_id)
    return keys.none()


def grantable_roles(membership: Membership) -> list[Role]:
    """The roles a member may give to others."""
    if may(membership, Right.MANAGE_OWNERS):
        return list(Role)
    if may(membership, Right.MANAGE_MEMBERS):
        return [role for role in Role if role != Role.OWNER]
    return []


def may_manage(membership: Membership, other: Membership) -> bool:
    """Whether the other's role may be changed and he removed; of oneself one only leaves."""
    return (
        other.team_id == membership.team_id
        and other.pk != membership.pk
        and Role(other.role) in grantable_roles(membership)
    )
