"""What each role may do. One table: a page, a command and a test read the same one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from django.core.exceptions import PermissionDenied

from accounts.models import ApiKey, ApiKeyQuerySet, Membership, Role


class Right(StrEnum):
    CREATE_KEYS = "create keys"
    REVOKE_OWN_KEYS = "revoke keys one made oneself"
    REVOKE_ALL_KEYS = "revoke every key of the team"


RIGHTS: Mapping[Role, frozenset[Right]] = {
    Role.OWNER: frozenset({Right.CREATE_KEYS, Right.REVOKE_OWN_KEYS, Right.REVOKE_ALL_KEYS}),
    Role.ADMIN: frozenset({Right.CREATE_KEYS, Right.REVOKE_OWN_KEYS, Right.REVOKE_ALL_KEYS}),
    Role.MEMBER: frozenset({Right.CREATE_KEYS, Right.REVOKE_OWN_KEYS}),
    Role.VIEWER: frozenset(),
}


def may(membership: Membership, right: Right) -> bool:
    return right in RIGHTS[Role(membership.role)]


def require(membership: Membership, right: Right) -> None:
    """Raises PermissionDenied (403)."""
    if not may(membership, right):
        raise PermissionDenied


def revocable_keys(membership: Membership) -> ApiKeyQuerySet:
    """The keys a member may revoke; a key outside is to him as if it did not exist."""
    keys = ApiKey.objects.filter(team_id=membership.team_id)
    if may(membership, Right.REVOKE_ALL_KEYS):
        return keys
    if may(membership, Right.REVOKE_OWN_KEYS):
        return keys.filter(created_by_id=membership.user_id)
    return keys.none()
