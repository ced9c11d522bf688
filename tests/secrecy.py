"""No secret is left in what the tests leave behind; whatever is found fails the test that left it.

API keys are known by their shape, so none can be forgotten. All else that must not be found is named by whoever makes
it: passwords, tokens, sealed secrets, the mark in the prompts that tests send to the API. Searched are

- the rows that this process writes, as they are written: a rollback hides nothing; sessions are opened for it
- what each test logged and printed
- every file of an installation when it ends: logs, journal, broker, the SQLite file; its sessions are opened too
- all rows of a PostgreSQL server and all values of a Redis before they end
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

KEY = re.compile(rb"rc-[0-9a-f]{48}")
# In links of mails: of invitations, of forgotten passwords.
TOKEN = re.compile(r"/(?:invitations|accounts/password/reset/key)/([^/\s]{20,})/")
SESSION = re.compile(r"\S+:\w+:\S+")
SHORTEST = 8


@dataclass(slots=True)
class Searched:
    """How much was looked through so far; `known` counts the secrets that have a name."""

    known: int = 0
    rows: int = 0
    outputs: int = 0
    files: int = 0
    bytes: int = 0

    def add(self, other: dict[str, int]) -> None:
        """What another process searched; most of the names are the same in each."""
        for name, number in other.items():
            here = getattr(self, name)
            setattr(self, name, max(here, number) if name == "known" else here + number)


@dataclass(slots=True)
class _Written:
    """Texts of the statements that this process has run since the last test's end."""

    texts: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE")) and params:
            searched.rows += 1
            kept = self.sessions if "django_session" in sql else self.texts
            for row in params if many else [params]:
                kept.extend(value for value in _texts(row) if len(value) >= SHORTEST)
        return execute(sql, params, many, context)


searched = Searched()
_secrets: set[bytes] = set()
_written = _Written()


def is_secret(text: str) -> str:
    """From now on this text must not be found anywhere."""
    assert len(text) >= SHORTEST, "too short to be told from other text"
    if text.encode() not in _secrets:
        _secrets.add(text.encode())
        searched.known += 1
    return text


# Every prompt that tests send to the API has it; the playground keeps its own conversations, and is sent others.
PROMPT_MARK = is_secret("quillwort-of-the-prompt")
ANSWER_MARK = is_secret("quillwort-of-the-answer")


def watch_connections() -> None:
    connection_created.connect(_watch, dispatch_uid="secrecy")


def check_rows() -> None:
    """Of the test that just ended. What it mailed names further secrets."""
    for message in getattr(mail, "outbox", []):
        for token in TOKEN.findall(str(message.body)):
            is_secret(token)
    texts, sessions = _written.texts, _written.sessions
    _written.texts, _written.sessions = [], []
    _fail("a row", found_in("\n".join(texts).encode()))
    check_sessions(sessions)


def check_folder(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            searched.files += 1
            _fail(str(path), found_in(path.read_bytes()))


def check_sessions(stored: Iterable[str]) -> None:
    """Sessions as the database has them, opened: packed, a secret would not be seen."""
    check_values("a session", [_unpacked(data) for data in stored if SESSION.fullmatch(data)])


def _unpacked(stored: str) -> bytes:
    """Of `django.core.signing.dumps`, whoever signed it."""
    packed = stored.partition(":")[0].encode()
    data = base64.urlsafe_b64decode(packed.lstrip(b".") + b"===")
    return zlib.decompress(data) if packed.startswith(b".") else data


def check_values(what: str, values: Iterable[bytes]) -> None:
    _fail(what, found_in(b"\n".join(values)))


def found_in(content: bytes) -> list[str]:
    """Enough of each secret to know it by."""
    searched.bytes += len(content)
    found = {*KEY.findall(content), *(secret for secret in _secrets if secret in content)}
    return [f"{secret[:7].decode()}…" for secret in sorted(found)]


def _fail(where: str, found: list[str]) -> None:
    if found:
        pytest.fail(f"{', '.join(found)} found in {where}", pytrace=False)


def _watch(*, connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    if _written not in connection.execute_wrappers:
        connection.execute_wrappers.append(_written)


def _texts(row: Any) -> Iterator[str]:
    for value in row.values() if isinstance(row, dict) else row:
        if isinstance(value, str):
            yield value
        elif isinstance(value, bytes):
            yield value.decode("utf-8", "replace")
        elif hasattr(value, "obj"):  # psycopg's wrapper of JSON
            yield repr(value.obj)
