"""A walk through everything that handles secrets; then no table, log, session, mail or file holds one."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from django.apps import apps
from django.conf import settings
from django.core import mail
from django.db import connection
from django.test import Client

from accounts.keys import issue_key
from accounts.models import ApiKey, User
from gateway.credentials import KeyRing
from gateway.errors import Unauthorized
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam, SignIn

if TYPE_CHECKING:
    from _typeshed import TraceFunction

SECRET = re.compile(r"rc-[0-9a-f]{48}")


def walk(client: Client, team_key: str) -> set[str]:
    """Create, rotate twice, fail on purpose, revoke by pasting: every secret that was seen on the way."""
    seen = set(SECRET.findall(client.post("/keys/new/", {"name": "laptop"}).content.decode()))
    key = ApiKey.objects.order_by("id").last()
    assert key
    for grace in ("3600", "0"):
        seen |= set(SECRET.findall(client.post(f"/keys/{key.pk}/rotate/", {"grace": grace}).content.decode()))
    client.post("/keys/leaked/", {"secret": team_key})
    client.post("/keys/leaked/", {"secret": team_key[:-1] + "g"})
    # Typed where it does not belong.
    client.post(f"/keys/{key.pk}/change/", {"name": "", "networks": team_key})
    client.post("/accounts/login/", {"login": f"{team_key}@example.com", "password": team_key})
    return seen | {team_key}


@pytest.mark.django_db(transaction=True)
def test_no_secret_is_left_anywhere(
    make_person: MakePerson, make_team: MakeTeam, sign_in: SignIn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    person: User = make_person(password=PASSWORD)
    team = make_team(owner=person)
    client = sign_in(person, team=team)
    secrets = walk(client, issue_key(team=team, created_by=person, name="leaked").secret)
    assert len(secrets) == 4
    kept = [repr(list(model._default_manager.values())) for model in apps.get_models()]
    kept += [caplog.text, repr(dict(client.session)), repr([str(message.message()) for message in mail.outbox])]
    for secret in [*secrets, PASSWORD]:
        assert not [text for text in kept if secret in text]
    for path in [*Path(settings.DATA_DIR).rglob("*")]:
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in secrets if secret.encode() in content], path


def test_a_wrong_key_is_looked_up_by_its_digest_alone(make_team: MakeTeam) -> None:
    """How much of a wrong secret is right changes nothing: its digest shares nothing with the right one's."""
    issued = issue_key(team=make_team(), created_by=None, name="batch")
    nearly = issued.secret[:-1] + ("0" if issued.secret[-1] != "0" else "1")
    assert not ApiKey.objects.with_secret(nearly).exists()
    columns = {field.column for field in ApiKey._meta.get_fields() if hasattr(field, "column")}
    with connection.cursor() as cursor:
        cursor.execute("select * from accounts_apikey")
        (row,) = cursor.fetchall()
    assert len(columns) == len(row)
    assert issued.secret[7:-4] not in repr(row)


def steps_with(secret: str) -> Counter[tuple[str, int]]:
    """The lines of ours that run while this secret is looked up, in whatever thread, and how often each."""
    ran: Counter[tuple[str, int]] = Counter()

    def trace(frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        if not frame.f_code.co_filename.endswith(("gateway/credentials.py", "accounts/keys.py", "accounts/models.py")):
            return None
        if event == "line":
            ran[frame.f_code.co_filename, frame.f_lineno] += 1
        return trace

    async def epoch() -> bytes:
        return b"epoch"

    before = sys.gettrace()
    threading.settrace(trace)
    sys.settrace(trace)
    try:
        with pytest.raises(Unauthorized):
            asyncio.run(KeyRing(epoch).authenticate(secret.encode()))
    finally:
        sys.settrace(before)
        threading.settrace(before)
    return ran


@pytest.mark.django_db(transaction=True)
def test_a_wrong_key_takes_the_same_steps_however_much_of_it_is_right(make_team: MakeTeam) -> None:
    """What is compared is one SHA-256 with another: nothing looks at how far two secrets agree."""
    right = issue_key(team=make_team(), created_by=None, name="batch").secret
    other = {digit: "1" if digit == "0" else "0" for digit in "0123456789abcdef"}
    wrong = [
        "rc-" + "".join(other[digit] for digit in right[3:]),
        *(right[:at] + other[right[at]] + right[at + 1 :] for at in (3, 12, 27, 50)),
        right[:27] + "".join(other[digit] for digit in right[27:]),
    ]
    first, *others = [steps_with(secret) for secret in wrong]
    assert sum(first.values()) > 10
    assert all(steps == first for steps in others)
