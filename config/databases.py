"""`DATABASE_URL` as Django's database settings: SQLite in the data folder, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from config.database_reach import try_again
from config.env import EnvError

# Writers queue for at most this long on SQLite's one write lock.
SQLITE_BUSY_TIMEOUT_SECONDS = 20
POOL = {"min_size": 1, "max_size": 10, "timeout": 10, "reconnect_timeout": 1, "reconnect_failed": try_again}


def sqlite(path: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            "timeout": SQLITE_BUSY_TIMEOUT_SECONDS,
            # A deferred transaction that turns into a writer fails at once instead of waiting.
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    }


def postgresql(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        # Kept connections leak under ASGI; the pool hands them out per request instead.
        "CONN_MAX_AGE": 0,
        # After the database has restarted the pool still holds what it dropped: none of that is handed out.
        "CONN_HEALTH_CHECKS": True,
        # PgBouncer in transaction mode shares connections between transactions.
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "OPTIONS": {"pool": POOL, **dict(parse_qsl(parts.query))},
    }


def database_from_url(url: str, *, data_dir: Path) -> dict[str, Any]:
    if not url:
        return sqlite(data_dir / "token-factory.sqlite3")
    scheme = url.split(":", 1)[0]
    if scheme in {"postgres", "postgresql"}:
        return postgresql(url)
    if scheme == "sqlite":
        return sqlite(Path(url.removeprefix("sqlite://")))
    raise EnvError(f"DATABASE_URL takes postgres:// or sqlite://, not {scheme}://")
