"""Secrets that must be said again (keys of teams' servers, second factors): encrypted in the database, by one key.

The key is derived from SECRET_KEY: whoever changes that has to enter the sealed secrets anew.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from functools import cache

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings

PURPOSE = b"token-factory: sealed secrets"


class Unreadable(ValueError):
    """Sealed with another SECRET_KEY, or damaged."""


def seal(secret: str) -> str:
    return _fernet().encrypt(secret.encode()).decode("ascii") if secret else ""


def unseal(sealed: str) -> str:
    """Raises Unreadable."""
    if not sealed:
        return ""
    try:
        return _fernet().decrypt(sealed.encode("ascii")).decode()
    except (InvalidToken, UnicodeError):
        raise Unreadable("sealed with another SECRET_KEY") from None


@cache
def _fernet() -> Fernet:
    digest = hmac.digest(settings.SECRET_KEY.encode(), PURPOSE, hashlib.sha256)
    return Fernet(base64.urlsafe_b64encode(digest))
