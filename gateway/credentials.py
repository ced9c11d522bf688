"""Whose call it is: an API key, or the session of a signed-in person.

What is known of a key is kept per process and trusted only while the key epoch stands still
(`accounts.key_epoch`), so a revocation binds the next request without a look-up on each.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from accounts.keys import SECRET_PATTERN, find_key
from billing.models import Source
from gateway.allowances import caller_of_key, caller_of_person
from gateway.caller import Caller
from gateway.database import in_database
from gateway.errors import Forbidden, Unauthorized
from gateway.wrong_keys import WrongKeys

MAX_CACHED_KEYS = 200_000
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
NO_CREDENTIAL = "Missing credentials. Send an API key as Authorization: Bearer rc-…"
BAD_KEY = "Invalid API key"

type Epoch = Callable[[], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class KnownKey:
    epoch: bytes
    caller: Caller
    expires_at: float | None

    def good(self, epoch: bytes) -> bool:
        return self.epoch == epoch and (self.expires_at is None or self.expires_at > time.time())


def presented(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The secret that a request's headers hold, whatever it is; None where no key was sent. Authorization wins over
    x-api-key."""
    authorization = headers.get(b"authorization")
    if authorization is None:
        api_key = headers.get(b"x-api-key")
        return None if api_key is None else api_key.strip()
    scheme, _, token = authorization.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


class KeyRing:
    """Keys by the digest of their secret."""

    def __init__(self, epoch: Epoch, *, wrong_rpm: int = 0) -> None:
        """`wrong_rpm`: unknown keys a minute that an address may send; 0 is no limit."""
        self._epoch = epoch
        self._last_epoch: bytes | None = None
        self._wrong = WrongKeys(wrong_rpm)
        self._known: dict[bytes, KnownKey] = {}

    def assumed(self, secret: bytes) -> tuple[Caller, bytes] | None:
        """The caller as last known, with the epoch for which that is right. Whoever takes it has the epoch looked at
        (`Counters.enter`) before anything comes of the call. None where the key is to be asked for."""
        if self._last_epoch is None:
            return None
        known = self._known.get(hashlib.sha256(secret).digest())
        return (known.caller, known.epoch) if known and known.good(self._last_epoch) else None

    async def authenticate(self, secret: bytes, *, address: str = "") -> Caller:
        """Raises Unauthorized for anything but a usable key, RateLimited where too many came from the address."""
        digest = hashlib.sha256(secret).digest()
        if digest not in self._known and not SECRET_PATTERN.fullmatch(secret.decode("latin-1")):
            raise Unauthorized(BAD_KEY)
        epoch = self._last_epoch = await self._epoch()
        known = self._known.get(digest)
        if known and epoch is not None and known.good(epoch):
            return known.caller
        if known is None:
            # One that was right before is no guess, however many others come from its address.
            self._wrong.try_from(address)
        # The epoch was read before the row: a change in between makes the entry stale at once.
        loaded = await in_database(_load, digest.hex(), epoch or b"")
        if loaded is None:
            self._known.pop(digest, None)
            raise Unauthorized(BAD_KEY)
        if known is None:
            self._wrong.was_right(address)
        if epoch is not None:
            while len(self._known) >= MAX_CACHED_KEYS:
                del self._known[next(iter(self._known))]
            self._known[digest] = loaded
        return loaded.caller


def _load(digest: str, epoch: bytes) -> KnownKey | None:
    key = find_key(digest)
    if key is None:
        return None
    until = key.good_until(digest)
    return KnownKey(epoch, caller_of_key(key), until.timestamp() if until else None)


async def authenticate_session(scope: dict[str, Any]) -> Caller:
    """The signed-in person's team as the caller; unsafe methods need the CSRF token, as on the pages."""
    return await in_database(_session_caller, scope)


def _session_caller(scope: dict[str, Any]) -> Caller:
    from io import BytesIO

    from django.contrib.auth.middleware import AuthenticationMiddleware
    from django.contrib.sessions.middleware import SessionMiddleware
    from django.middleware.csrf import CsrfViewMiddleware

    from accounts.rights import Right, may
    from accounts.teams import current_membership

    request = ASGIRequest({**scope, "root_path": ""}, BytesIO())
    SessionMiddleware(_no_response).process_request(request)
    AuthenticationMiddleware(_no_response).process_request(request)
    if not request.user.is_authenticated:
        raise Unauthorized(NO_CREDENTIAL)
    csrf = CsrfViewMiddleware(_no_response)
    csrf.process_request(request)
    if csrf.process_view(request, _no_response, (), {}) is not None:
        raise Forbidden("CSRF token missing or wrong: calls with a browser session send it as X-CSRFToken.")
    membership = current_membership(request)
    if membership is None:
        raise Forbidden("You belong to no team.")
    if request.method not in SAFE_METHODS and not may(membership, Right.USE_MODELS):
        raise Forbidden("Your role in the team is to read: it cannot use the models.")
    return caller_of_person(team=membership.team, user=membership.user, source=Source.API)


def _no_response(request: Any) -> Any:
    raise AssertionError("the middleware is asked, not run")
