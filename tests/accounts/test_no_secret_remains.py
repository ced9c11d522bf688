"""A walk through everything that handles secrets; then no table, log, session, mail or file holds one."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from django.apps import apps
from django.conf import settings
from django.core import mail
from django.db import connection
from django.test import Client

from accounts.keys import issue_key
from accounts.models import ApiKey, User
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam, SignIn

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
