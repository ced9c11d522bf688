"""What allauth keeps of authenticator apps and recovery codes, sealed: reading the database is not signing in."""

from __future__ import annotations

import base64
import logging
import secrets

from allauth.mfa.adapter import DefaultMFAAdapter

from accounts.sealing import Unreadable, seal, unseal

log = logging.getLogger(__name__)


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    def encrypt(self, text: str) -> str:
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        try:
            return unseal(encrypted_text)
        except Unreadable as error:
            # No code is right then. Base32, as an authenticator's secret is written.
            log.warning("a second factor cannot be read: %s", error)
            return base64.b32encode(secrets.token_bytes(20)).decode("ascii")
