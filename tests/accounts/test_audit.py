"""The audit log: only added to, read by who may, filtered, exported, and free of secrets."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime

import pytest
from django.test import Client

from accounts.audit import Action, Actor, record
from accounts.keys import issue_key, rotate_key
from accounts.models import AppendOnly, AuditEntry, Role, Team, User
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam, SignIn

MEI, TOM = Actor(101, "Mei", "203.0.113.9"), Actor(102, "Tom", "2001:db8::1")


@pytest.fixture
def owner(make_person: MakePerson) -> User:
    return make_person()


@pytest.fixture
def team(owner: User, make_team: MakeTeam) -> Team:
    return make_team(owner=owner)


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_an_entry_is_neither_changed_nor_removed(team: Team) -> None:
    record(actor=MEI, action=Action.TEAM_CHANGED, team=team, object=team)
    entry = AuditEntry.objects.get()
    entry.actor_name = "somebody else"
    with pytest.raises(AppendOnly):
        entry.save()
    with pytest.raises(AppendOnly):
        entry.delete()
    with pytest.raises(AppendOnly):
        AuditEntry.objects.update(actor_name="somebody else")
    with pytest.raises(AppendOnly):
        AuditEntry.objects.all().delete()
    assert AuditEntry.objects.get().actor_name == "Mei"


def test_the_page_says_who_did_what_to_which_from_where(team: Team, owner: User, sign_in: SignIn) -> None:
    key = issue_key(team=team, created_by=None, name="nightly batch", actor=MEI).key
    rotate_key(key=key, grace_seconds=3600, actor=TOM)
    page = sign_in(owner, team=team).get("/team/audit/").content.decode()
    for text in ("Mei", "203.0.113.9", "Key created", "nightly batch", "Tom", "2001:db8::1", "seconds of grace: 3600"):
        assert text in page


def test_the_page_names_the_address_of_the_request(team: Team, owner: User, sign_in: SignIn) -> None:
    client = sign_in(owner, team=team)
    client.post("/keys/new/", {"name": "laptop"}, REMOTE_ADDR="198.51.100.7")
    entry = AuditEntry.objects.get(action="key.created")
    assert (entry.actor_id, entry.address, entry.team) == (owner.pk, "198.51.100.7", team)


def test_filters_narrow_page_and_export_alike(team: Team, owner: User, sign_in: SignIn) -> None:
    for actor in (MEI, TOM):
        issue_key(team=team, created_by=None, name=f"{actor.name}'s key", actor=actor)
    record(actor=MEI, action=Action.TEAM_CHANGED, team=team, object=team)
    client = sign_in(owner, team=team)

    def found(query: str) -> list[tuple[str, str]]:
        answer = client.get(f"/team/audit.csv?{query}")
        return [(row["actor"], row["action"]) for row in rows(b"".join(answer.streaming_content))]  # type: ignore[attr-defined]

    assert found("") == [("Mei", "team.changed"), ("Tom", "key.created"), ("Mei", "key.created")]
    assert found("actor=102") == [("Tom", "key.created")]
    assert found("action=team.changed") == [("Mei", "team.changed")]
    assert found("until=2020-01-01") == []
    page = client.get("/team/audit/?actor=102").content
    assert b"Tom&#x27;s key" in page
    assert b"Mei&#x27;s key" not in page


def test_the_days_of_a_filter_are_the_teams(team: Team, owner: User, sign_in: SignIn) -> None:
    """20:00 in London is the next day in Shanghai."""
    AuditEntry.objects.create(
        team=team, at=datetime(2026, 11, 28, 20, tzinfo=UTC), actor_name="Mei", action="team.changed"
    )
    client = sign_in(owner, team=team)
    for day, count in (("2026-11-28", 0), ("2026-11-29", 1)):
        answer = client.get(f"/team/audit.csv?since={day}&until={day}")
        assert len(rows(b"".join(answer.streaming_content))) == count  # type: ignore[attr-defined]


def test_a_name_that_is_a_formula_is_exported_as_text(team: Team, owner: User, sign_in: SignIn) -> None:
    issue_key(team=team, created_by=None, name='=HYPERLINK("http://evil.example")', actor=MEI)
    answer = sign_in(owner, team=team).get("/team/audit.csv")
    (row,) = rows(b"".join(answer.streaming_content))  # type: ignore[attr-defined]
    assert row["object"].startswith("'=")


@pytest.mark.parametrize(("role", "status"), [(Role.ADMIN, 200), (Role.MEMBER, 403), (Role.VIEWER, 403)])
def test_who_reads_it(role: Role, status: int, make_person: MakePerson, make_team: MakeTeam, sign_in: SignIn) -> None:
    person = make_person()
    client = sign_in(person, team=make_team(**{role.value: person}))
    assert client.get("/team/audit/").status_code == client.get("/team/audit.csv").status_code == status


def test_another_teams_log_is_not_in_ones_own(team: Team, owner: User, make_team: MakeTeam, sign_in: SignIn) -> None:
    record(actor=MEI, action=Action.TEAM_CHANGED, team=make_team(name="Elsewhere"), object=team)
    assert b"Mei" not in sign_in(owner, team=team).get("/team/audit/").content


def test_signing_in_failing_and_changing_the_password_are_ones_own_activity(
    client: Client, make_person: MakePerson
) -> None:
    make_person(email="mei@example.com", password=PASSWORD)
    client.post("/accounts/login/", {"login": "mei@example.com", "password": "wrong"})
    client.post("/accounts/login/", {"login": "mei@example.com", "password": PASSWORD})
    client.post(
        "/accounts/password/change/",
        {"oldpassword": PASSWORD, "password1": "copper-lantern-77", "password2": "copper-lantern-77"},
    )
    actions = list(AuditEntry.objects.filter(team=None).order_by("id").values_list("action", flat=True))
    assert actions == ["account.sign_in_failed", "account.signed_in", "account.password"]
    page = client.get("/accounts/activity/").content.decode()
    assert re.findall(r'<td class="nowrap">([A-Z][^<]+)</td>', page) == [
        "Password changed",
        "Signed in",
        "Sign-in failed",
    ]


def test_what_a_stranger_types_as_his_address_is_not_kept(client: Client, db: None) -> None:
    client.post("/accounts/login/", {"login": "my-password@example.com", "password": "wrong"})
    assert not AuditEntry.objects.exists()
