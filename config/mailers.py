"""`EMAIL_URL` as a Django mailer: the console, or an SMTP server."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

from config.env import EnvError

SMTP_TIMEOUT_SECONDS = 10


def mailer_from_url(url: str) -> dict[str, Any]:
    """`smtp://user:password@host:587` (STARTTLS), `smtps://…:465` (TLS), `smtp+plain://…:25`; empty: the console."""
    if not url:
        return {"BACKEND": "django.core.mail.backends.console.EmailBackend"}
    parts = urlsplit(url)
    if parts.scheme not in {"smtp", "smtps", "smtp+plain"} or not parts.hostname:
        raise EnvError("EMAIL_URL takes smtp://, smtps:// or smtp+plain:// and a host")
    return {
        "BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "OPTIONS": {
            "host": parts.hostname,
            "port": parts.port or {"smtp": 587, "smtps": 465}.get(parts.scheme, 25),
            "username": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "use_tls": parts.scheme == "smtp",
            "use_ssl": parts.scheme == "smtps",
            "timeout": SMTP_TIMEOUT_SECONDS,
        },
    }
