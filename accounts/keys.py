"""API keys: `rc-` and 48 lowercase hex digits, kept as their SHA-256.

Every verb here is written to the audit log and binds the next request in every process before it returns.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts import key_epoch
from accounts.audit import SYSTEM, Action, Actor, record
from accounts.models import ApiKey, Membership, Team, User
from accounts.rights import Right, require

SECRET_PATTERN = re.compile(r"rc-[0-9a-f]{48}", re.ASCII)
MAX_GRACE_SECONDS = 7 * 86_400


class KeyChanged(Exception):
    """The key was revoked or rotated by somebody else in the meantime; nothing was done."""


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key with its secret, which exists nowhere else and is shown once.

    `told`: whether every process has heard. One that has not may go on accepting the secret before until it does; the
    new one is to be shown all the same, or nobody would ever have it.
    """

    key: ApiKey
    secret: str
    told: bool = True

    def __repr__(self) -> str:
        return f"IssuedKey(key={self.key!r})"


@dataclass(frozen=True, slots=True)
class KeyTerms:
    """What a person decides about a key; the fields are ApiKey's."""

    expires_at: datetime | None = None
    models: list[str] = field(default_factory=list)
    endpoints: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=list)
    rpm_limit: int | None = None
    concurrency_limit: int | None = None
    points_limit_ppt: int | None = None
    portable: bool = False

    @classmethod
    def of(cls, key: ApiKey) -> KeyTerms:
        return cls(**{name: getattr(key, name) for name in cls.__dataclass_fields__})


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def find_key(digest: str) -> ApiKey | None:
    """The one usable key this secret's digest opens, its team loaded; see `ApiKey.good_until` for how long it will."""
    return ApiKey.objects.usable().with_secret(digest).select_related("team").first()


def find_key_by_secret(secret: str) -> ApiKey | None:
    """Whose secret this is, usable or not: for revoking one that leaked.

    One that was rotated out and is past its grace opens nothing, so it ends nothing either.
    """
    return ApiKey.objects.with_secret(digest_of(secret)).first()


def issue_key(
    *,
    team: Team,
    created_by: User | None,
    name: str,
    expires_at: datetime | None = None,
    terms: KeyTerms | None = None,
    by: Membership | None = None,
    actor: Actor = SYSTEM,
) -> IssuedKey:
    """`by`: who must still be allowed to when the key is made; PermissionDenied else.

    Without it somebody who is being removed could have a key made just after his were revoked.
    """
    secret = _new_secret()
    chosen = terms or KeyTerms(expires_at=expires_at)
    with transaction.atomic():
        if by is not None:
            Team.objects.select_for_update().get(pk=team.pk)
            require(Membership.objects.filter(pk=by.pk, team=team).first(), Right.CREATE_KEYS)
        key = ApiKey.objects.create(team=team, created_by=created_by, name=name, **_columns(secret), **asdict(chosen))
        record(actor=actor, action=Action.KEY_CREATED, team=team, object=key, details=_noted(KeyTerms(), chosen))
    # A process may remember that this digest opens nothing.
    return IssuedKey(key, secret, told=_told())


def rotate_key(*, key: ApiKey, grace_seconds: int, actor: Actor = SYSTEM) -> IssuedKey:
    """Another secret for the same key. The present one stays good for `grace_seconds`, any earlier one ends now.

    Raises KeyChanged when it is revoked, or was rotated by somebody else since `key` was read.
    """
    grace = min(max(grace_seconds, 0), MAX_GRACE_SECONDS)
    secret = _new_secret()
    with transaction.atomic():
        # Not of whoever made it any more: it was handed to the team, and he may be gone.
        seen = ApiKey.objects.filter(pk=key.pk, digest=key.digest, created_by=key.created_by_id, revoked_at=None)
        changed = seen.update(
            previous_digest=key.digest if grace else None,
            previous_until=timezone.now() + timedelta(seconds=grace) if grace else None,
            **_columns(secret),
        )
        if not changed:
            raise KeyChanged
        record(
            actor=actor,
            action=Action.KEY_ROTATED,
            team=key.team,
            object=key,
            details={"from": key.hint, "to": _hint(secret), "grace_seconds": grace},
        )
    told = _told()
    key.refresh_from_db()
    return IssuedKey(key, secret, told)


def revoke_key(*, key: ApiKey, actor: Actor = SYSTEM) -> None:
    """Refused from the next request on, in every process, before this returns. Revoking twice keeps the first time."""
    _update(key, Action.KEY_REVOKED, actor, where={"revoked_at": None}, revoked_at=timezone.now())


def disable_key(*, key: ApiKey, actor: Actor = SYSTEM) -> None:
    """Refused like a revoked key, until it is enabled again."""
    where = {"disabled_at": None, "revoked_at": None}
    _update(key, Action.KEY_DISABLED, actor, where=where, disabled_at=timezone.now())


def enable_key(*, key: ApiKey, actor: Actor = SYSTEM) -> None:
    where = {"disabled_at__isnull": False, "revoked_at": None}
    _update(key, Action.KEY_ENABLED, actor, where=where, disabled_at=None)


def change_key(*, key: ApiKey, name: str, terms: KeyTerms, actor: Actor = SYSTEM) -> None:
    """Raises KeyChanged for a revoked key."""
    noted = _noted(KeyTerms.of(key), terms) | ({"name": [key.name, name]} if name != key.name else {})
    if noted and not _update(
        key, Action.KEY_CHANGED, actor, where={"revoked_at": None}, details=noted, name=name, **asdict(terms)
    ):
        raise KeyChanged


def revoke_keys_of(*, team: Team, user: User | None, actor: Actor) -> None:
    """Every key of the team that this person made, or all of them. Inside a transaction; the caller bumps the epoch."""
    keys = team.api_keys.filter(revoked_at=None)
    for key in (keys.filter(created_by=user) if user else keys).select_for_update():
        ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
        record(actor=actor, action=Action.KEY_REVOKED, team=team, object=key, details={"reason": "member removed"})


def hand_over_keys_of(*, team: Team, user: User, actor: Actor) -> None:
    """The same keys go on working, made by nobody in particular. Inside a transaction, as above."""
    for key in ApiKey.objects.filter(team=team, created_by=user, revoked_at=None).select_for_update():
        ApiKey.objects.filter(pk=key.pk).update(created_by=None)
        record(actor=actor, action=Action.KEY_HANDED_OVER, team=team, object=key, details={"from": str(user)})


def _update(
    key: ApiKey,
    action: Action,
    actor: Actor,
    *,
    where: dict[str, Any],
    details: dict[str, Any] | None = None,
    **fields: Any,
) -> bool:
    """One conditional change, recorded if it changed anything; the epoch moves in any case."""
    with transaction.atomic():
        changed = ApiKey.objects.filter(pk=key.pk, **where).update(**fields)
        if changed:
            record(actor=actor, action=action, team=key.team, object=key, details={"key": key.hint} | (details or {}))
    key_epoch.bump()
    key.refresh_from_db()
    return bool(changed)


def _told() -> bool:
    try:
        key_epoch.bump()
    except key_epoch.NotTold:
        return False
    return True


def _new_secret() -> str:
    return f"rc-{secrets.token_hex(24)}"


def _columns(secret: str) -> dict[str, str]:
    return {"digest": digest_of(secret), "prefix": secret[:7], "last_four": secret[-4:]}


def _hint(secret: str) -> str:
    return f"{secret[:7]}…{secret[-4:]}"


def _noted(before: KeyTerms, after: KeyTerms) -> dict[str, Any]:
    """The terms that differ, each as [before, after] in JSON's types."""
    return {name: [_json(old), _json(new)] for name, old, new in _pairs(before, after) if old != new}


def _pairs(before: KeyTerms, after: KeyTerms) -> Iterable[tuple[str, Any, Any]]:
    return ((name, getattr(before, name), getattr(after, name)) for name in KeyTerms.__dataclass_fields__)


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
