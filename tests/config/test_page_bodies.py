"""Bodies that pages are sent, bounded before they are stored anywhere."""

from __future__ import annotations

import asyncio
import io
from typing import IO, Any

import pytest
from django.core.handlers.asgi import ASGIHandler

from config import page_bodies
from config.asgi import django_application

LIMIT_BYTES = 3_000_000
PIECE = bytes(1_000_000)
FORM = b"content-type", b"application/x-www-form-urlencoded"


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What Django has written down of each body, in bytes."""
    found: list[int] = []
    read_body = ASGIHandler.read_body

    async def noted(self: Any, receive: Any) -> Any:
        file: IO[bytes] = await read_body(self, receive)
        found.append(file.seek(0, io.SEEK_END))
        file.seek(0)
        return file

    monkeypatch.setattr(ASGIHandler, "read_body", noted)
    return found


async def ask(*pieces: bytes, headers: list[tuple[bytes, bytes]]) -> tuple[int, bytes]:
    """Status and page, from a client that sends all of its body whatever it is told."""
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": "/accounts/login/", "raw_path": b"/accounts/login/",
        "query_string": b"", "headers": [(b"host", b"localhost"), FORM, *headers], "server": ("localhost", 80),
    }  # fmt: skip
    left = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    left.append({"type": "http.request", "body": b"", "more_body": False})
    told: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if left:
            return left.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        told.append(message)

    await django_application(scope, page_bodies.limited(scope, receive, limit_bytes=LIMIT_BYTES), send)
    return told[0]["status"], b"".join(message.get("body", b"") for message in told[1:])


@pytest.mark.django_db(transaction=True)
def test_a_body_within_the_limit_reaches_the_view(stored: list[int]) -> None:
    status, page = asyncio.run(ask(PIECE, PIECE, PIECE, headers=[(b"content-length", b"3000000")]))
    # Without the form's token, and so no further.
    assert (status, stored) == (403, [3_000_000])
    assert b"413" not in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("headers", "kept"), [([(b"content-length", b"5000000")], 0), ([], 3_000_000)], ids=["declared", "in pieces"]
)
def test_a_larger_one_is_refused_in_words_and_not_stored(
    stored: list[int], headers: list[tuple[bytes, bytes]], kept: int
) -> None:
    status, page = asyncio.run(ask(*[PIECE] * 5, headers=headers))
    assert (status, stored) == (413, [kept])
    assert b"This is too large for one request." in page
