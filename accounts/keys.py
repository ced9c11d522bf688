"""API keys: `rc-` and 48 lowercase hex digits, kept as their SHA-256."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from accounts import key_epoch
from accounts.models import ApiKey, Team, User

SECRET_PATTERN = re.compile(r"rc-[0-9a-f]{48}", re.ASCII)


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A new key with its secret, which exists nowhere else and is shown once."""

    key: ApiKey
    secret: str

    def __repr__(self) -> str:
        return f"IssuedKey(key={self.key!r})"


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def issue_key(*, team: Team, created_by: User | None, name: str, expires_at: datetime | None = None) -> IssuedKey:
    secret = f"rc-{secrets.token_hex(24)}"
    key = ApiKey.objects.create(
        team=team,
        created_by=created_by,
        name=name,
        digest=digest_of(secret),
        prefix=secret[:7],
        last_four=secret[-4:],
        expires_at=expires_at,
    )
    return IssuedKey(key, secret)


def revoke_key(*, key: ApiKey) -> None:
    """Refused from the next request on, in every process, before this returns. Revoking twice keeps the first time."""
    ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now())
    key_epoch.bump()
    key.refresh_from_db()
