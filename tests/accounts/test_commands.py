"""Keys from the command line, and the first owner."""

from __future__ import annotations

import io
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import Client

from accounts import key_epoch
from accounts.bootstrap import first_owner
from accounts.keys import digest_of, issue_key
from accounts.models import ApiKey, KeyState, User
from tests.accounts.conftest import MakePerson, MakeTeam


def run(command: str, *arguments: str) -> str:
    out = io.StringIO()
    call_command(command, *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def test_issue_key_prints_the_secret_alone(make_person: MakePerson, make_team: MakeTeam) -> None:
    person = make_person(email="mei@example.com")
    team = make_team(name="Research", member=person)
    secret = run("issue_key", "--team", "Research", "--name", "batch", "--email", "mei@example.com")
    key = ApiKey.objects.get(digest=digest_of(secret))
    assert (key.team, key.name, key.created_by) == (team, "batch", person)


def test_issue_key_takes_a_teams_number(make_team: MakeTeam) -> None:
    team = make_team()
    secret = run("issue_key", "--team", str(team.pk), "--name", "batch")
    assert ApiKey.objects.get(digest=digest_of(secret)).created_by is None


def test_issue_key_says_what_is_wrong(make_person: MakePerson, make_team: MakeTeam) -> None:
    make_person(email="stranger@example.com")
    make_team(name="Research")
    with pytest.raises(CommandError, match="No team is called 'Nowhere'"):
        run("issue_key", "--team", "Nowhere", "--name", "x")
    with pytest.raises(CommandError, match=r"stranger@example\.com is not a member of Research"):
        run("issue_key", "--team", "Research", "--name", "x", "--email", "stranger@example.com")
    make_team(name="Research")
    with pytest.raises(CommandError, match="Several teams"):
        run("issue_key", "--team", "Research", "--name", "x")


def test_revoke_key_by_its_number(make_team: MakeTeam) -> None:
    key = issue_key(team=make_team(), created_by=None, name="batch").key
    assert key.hint in run("revoke_key", str(key.pk))
    key.refresh_from_db()
    assert key.state == KeyState.REVOKED


def test_revoke_key_by_the_secret_on_stdin(make_team: MakeTeam, monkeypatch: pytest.MonkeyPatch) -> None:
    issued = issue_key(team=make_team(), created_by=None, name="batch")
    monkeypatch.setattr("sys.stdin", io.StringIO(issued.secret + "\n"))
    assert issued.secret not in run("revoke_key")
    issued.key.refresh_from_db()
    assert issued.key.state == KeyState.REVOKED


def test_revoke_key_says_when_redis_could_not_be_told(make_team: MakeTeam, monkeypatch: pytest.MonkeyPatch) -> None:
    key = issue_key(team=make_team(), created_by=None, name="batch").key
    bump = partial(_raise, key_epoch.NotTold)
    monkeypatch.setattr(key_epoch, "bump", bump)
    with pytest.raises(CommandError, match="Redis does not answer"):
        run("revoke_key", str(key.pk))
    key.refresh_from_db()
    assert key.state == KeyState.REVOKED


def _raise(error: type[Exception]) -> None:
    raise error


def test_revoke_key_does_not_repeat_what_it_could_not_find(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "rc-" + "0" * 48
    monkeypatch.setattr("sys.stdin", io.StringIO(secret))
    with pytest.raises(CommandError) as caught:
        run("revoke_key")
    assert secret not in str(caught.value)


def test_an_empty_installation_gets_an_owner_who_can_sign_in(db: None) -> None:
    made = first_owner()
    assert made is not None
    owner = User.objects.get(email="owner@localhost")
    assert owner.is_superuser
    assert EmailAddress.objects.filter(user=owner, verified=True, primary=True).exists()
    key = ApiKey.objects.usable().get(digest=digest_of(made.secret))
    assert (key.name, key.team, key.created_by) == ("First key", owner.personal_team, owner)
    assert made.password not in repr(made)
    assert made.secret not in repr(made)
    client = Client()
    client.post("/accounts/login/", {"login": made.email, "password": made.password})
    assert client.get("/keys/").status_code == 200
    assert client.get("/admin/accounts/apikey/").status_code == 200


def test_an_installation_with_people_gets_none(make_person: MakePerson) -> None:
    make_person()
    assert first_owner() is None
    assert User.objects.count() == 1


RACE = """
import django
django.setup()
from accounts import key_epoch
from accounts.bootstrap import first_owner
print("ready", flush=True)
input()
print("made" if first_owner() else "none", flush=True)
"""


def test_of_two_processes_that_race_one_makes_the_owner(tmp_path: Path) -> None:
    environment = os.environ | {"DATA_DIR": str(tmp_path), "DATABASE_URL": "", "REDIS_URL": ""}
    environment["DJANGO_SETTINGS_MODULE"] = "config.settings"  # the tests' own would choose another folder
    options: dict[str, Any] = {"env": environment, "cwd": settings.BASE_DIR, "text": True, "stdout": subprocess.PIPE}
    subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity=0"], check=True, **options)
    with ExitStack() as stack:
        racers = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", RACE], stdin=subprocess.PIPE, **options))
            for _ in range(2)
        ]
        for racer in racers:
            assert racer.stdout
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin
            racer.stdin.write("\n")
            racer.stdin.flush()
        assert sorted(racer.communicate()[0] for racer in racers) == ["made\n", "none\n"]
    with closing(sqlite3.connect(tmp_path / "token-factory.sqlite3")) as database:
        for table in ("accounts_user", "accounts_team", "accounts_membership", "accounts_apikey"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)
