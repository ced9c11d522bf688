"""The audit log: only added to, read by who may, filtered, exported, and free of secrets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, transaction
from django.test import AsyncClient, Client

from accounts.audit import SYSTEM, Action, Actor, record
from accounts.audit_log import FIELDS
from accounts.keys import issue_key, rotate_key
from accounts.models import AppendOnly, AuditEntry, Role, Team, User
from gateway.endpoints import register_endpoint
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam, SignIn

MEI, TOM = Actor(101, "Mei", "203.0.113.9"), Actor(102, "Tom", "2001:db8::1")


@pytest.fixture
def owner(make_person: MakePerson) -> User:
    return make_person()


@pytest.fixture
def team(owner: User, make_team: MakeTeam) -> Team:
    return make_team(owner=owner)


def exported(person: User, team: Team, query: str = "") -> list[dict[str, str]]:
    async def read() -> bytes:
        client = AsyncClient()
        await client.aforce_login(person)
        session = await client.asession()
        await session.aset("team_id", team.pk)
        await session.asave()
        answer = await client.get(f"/team/audit.csv?{query}")
        assert answer["Content-Type"] == "text/csv; charset=utf-8"
        return b"".join([part async for part in answer])  # type: ignore[attr-defined]

    return list(csv.DictReader(io.StringIO(async_to_sync(read)().decode("utf-8-sig"))))


def another_of_the_same_number(entry: AuditEntry) -> None:
    AuditEntry(pk=entry.pk, team=entry.team, actor_name="somebody else", action="team.changed").save()


def renamed(entry: AuditEntry) -> AuditEntry:
    entry.actor_name = "somebody else"
    return entry


WAYS: dict[str, Callable[[AuditEntry], object]] = {
    "save": lambda entry: renamed(entry).save(),
    "save some fields": lambda entry: renamed(entry).save(update_fields=["actor_name"]),
    "another of the same number": another_of_the_same_number,
    "delete": lambda entry: entry.delete(),
    "delete many": lambda entry: AuditEntry.objects.all().delete(),
    "delete without signals": lambda entry: AuditEntry.objects.all()._raw_delete("default"),
    "update": lambda entry: AuditEntry.objects.update(actor_name="somebody else"),
    "update many": lambda entry: AuditEntry.objects.bulk_update([renamed(entry)], ["actor_name"]),
    "update or create": lambda entry: AuditEntry.objects.update_or_create({"actor_name": "somebody else"}, pk=entry.pk),
    "insert over": lambda entry: AuditEntry.objects.bulk_create(
        [renamed(entry)], update_conflicts=True, update_fields=["actor_name"], unique_fields=["id"]
    ),
    "by its team": lambda entry: entry.team and entry.team.audit_entries.all().delete(),
    "by its team's update": lambda entry: entry.team and entry.team.audit_entries.update(actor_name="somebody else"),
    "behind the manager": lambda entry: AuditEntry._base_manager.update(actor_name="somebody else"),
    "with its team": lambda entry: entry.team and entry.team.delete(),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_entry_is_neither_changed_nor_removed(way: str, team: Team) -> None:
    record(actor=MEI, action=Action.TEAM_CHANGED, team=team, object=team)
    with pytest.raises((AppendOnly, IntegrityError)), transaction.atomic():
        WAYS[way](AuditEntry.objects.get())
    assert AuditEntry.objects.get().actor_name == "Mei"


def test_the_admin_shows_entries_to_look_at(team: Team, make_person: MakePerson, client: Client) -> None:
    record(actor=MEI, action=Action.TEAM_CHANGED, team=team, object=team)
    entry = AuditEntry.objects.get()
    staff = make_person()
    User.objects.filter(pk=staff.pk).update(is_staff=True, is_superuser=True)
    client.force_login(staff)
    page = f"/admin/accounts/auditentry/{entry.pk}"
    assert b"Mei" in client.get(f"{page}/change/").content
    for address, form in (
        (f"{page}/change/", {"actor_name": "somebody else"}),
        (f"{page}/delete/", {"post": "yes"}),
        ("/admin/accounts/auditentry/add/", {"actor_name": "somebody else"}),
    ):
        assert client.post(address, form).status_code == 403
    client.post(
        "/admin/accounts/auditentry/", {"action": "delete_selected", "_selected_action": entry.pk, "post": "yes"}
    )
    assert list(AuditEntry.objects.values_list("actor_name", flat=True)) == ["Mei"]


def test_the_page_says_who_did_what_to_which_from_where(team: Team, owner: User, sign_in: SignIn) -> None:
    key = issue_key(team=team, created_by=None, name="nightly batch", actor=MEI).key
    rotate_key(key=key, grace_seconds=3600, actor=TOM)
    page = sign_in(owner, team=team).get("/team/audit/").content.decode()
    for text in ("Mei", "203.0.113.9", "Key created", "nightly batch", "Tom", "2001:db8::1", "seconds of grace: 3600"):
        assert text in page


def test_what_is_noted_is_told_in_the_readers_language(team: Team, owner: User, sign_in: SignIn) -> None:
    """Whatever a verb notes has a name in words: what has none would be shown as it is in the code."""
    client = sign_in(owner, team=team)
    register_endpoint(
        team=team,
        created_by=owner,
        slug="lab",
        name="Lab",
        base_url="http://127.0.0.1:9/v1",
        kind="vllm",
        api_key="",
        actor=MEI,
    )
    client.post("/usage/statements/readers/", {"reader": owner.pk})
    client.post("/team/invitations/", {"email": "new@example.com", "role": "admin"})
    client.post(
        "/team/settings/", {"name": "Lab", "time_zone": "Europe/Berlin", "default_key_days": 30, "rpm_limit": 9}
    )
    client.post("/keys/new/", {"name": "batch", "rpm_limit": 7, "portable": "on", "networks": "10.0.0.0/8"})
    key = team.api_keys.get()
    client.post(f"/keys/{key.pk}/rotate/", {"grace": 3600})
    noted = {name for entry in AuditEntry.objects.filter(team=team) for name in entry.details}
    assert {"change", "statement readers", "role", "time_zone", "networks", "grace_seconds"} <= noted <= set(FIELDS)
    page = client.get("/team/audit/", headers={"Accept-Language": "zh-hans"}).content.decode()
    assert '<th scope="col">对象</th>' in page
    for text in ("变更: 已添加专属端点", "账单收件人: – →"):
        assert text in page


def test_the_page_names_the_address_of_the_request(team: Team, owner: User, sign_in: SignIn) -> None:
    client = sign_in(owner, team=team)
    client.post("/keys/new/", {"name": "laptop"}, REMOTE_ADDR="198.51.100.7")
    entry = AuditEntry.objects.get(action="key.created")
    assert (entry.actor_id, entry.address, entry.team) == (owner.pk, "198.51.100.7", team)


@pytest.mark.django_db(transaction=True)
def test_filters_narrow_page_and_export_alike(team: Team, owner: User, sign_in: SignIn) -> None:
    for actor in (MEI, TOM, SYSTEM):
        issue_key(team=team, created_by=None, name=f"{actor.name}'s key", actor=actor)
    # By another name by now: the filter knows a person by the last one.
    record(actor=Actor(101, "Mei Lin", ""), action=Action.TEAM_CHANGED, team=team, object=team)

    def found(query: str) -> list[tuple[str, str]]:
        return [(row["actor"], row["action"]) for row in exported(owner, team, query)]

    everything = [
        ("Mei Lin", "team.changed"),
        ("command line", "key.created"),
        ("Tom", "key.created"),
        ("Mei", "key.created"),
    ]
    assert found("") == everything
    assert found("actor=102") == [("Tom", "key.created")]
    assert found("actor=101") == [("Mei Lin", "team.changed"), ("Mei", "key.created")]
    assert found("actor=0") == [("command line", "key.created")]
    assert found("action=team.changed") == [("Mei Lin", "team.changed")]
    assert found("until=2020-01-01") == found("since=9999-12-31") == []
    assert found("since=0001-01-01&until=9999-12-31") == everything
    page = sign_in(owner, team=team).get("/team/audit/?actor=102").content
    assert re.findall(rb'<option value="(\d+)"[^>]*>([^<]+)</option>', page) == [
        (b"101", b"Mei Lin"),
        (b"0", b"No person: keys and the command line"),
        (b"102", b"Tom"),
    ]
    assert b"Tom&#x27;s key" in page
    assert b"Mei&#x27;s key" not in page


@pytest.mark.parametrize(
    "query", ["actor=x", "actor=9" + "9" * 30, "action=nonsense", "since=yesterday", "page=0", "a=%00"]
)
def test_a_filter_that_makes_no_sense_leaves_everything(query: str, team: Team, owner: User, sign_in: SignIn) -> None:
    record(actor=MEI, action=Action.TEAM_CHANGED, team=team, object=team)
    answer = sign_in(owner, team=team).get(f"/team/audit/?{query}")
    assert (answer.status_code, b"203.0.113.9" in answer.content) == (200, True)


@pytest.mark.django_db(transaction=True)
def test_the_days_of_a_filter_are_the_teams(team: Team, owner: User) -> None:
    """20:00 in London is the next day in Shanghai."""
    at = datetime(2026, 11, 28, 20, tzinfo=UTC)
    AuditEntry.objects.create(team=team, at=at, actor_name="Mei", action="team.changed")
    for day, count in (("2026-11-28", 0), ("2026-11-29", 1)):
        assert len(exported(owner, team, f"since={day}&until={day}")) == count


@pytest.mark.django_db(transaction=True)
def test_a_long_log_is_exported_whole_a_stretch_at_a_time(
    team: Team, owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accounts.audit_log.ENTRIES_AT_A_TIME", 2)
    at = datetime(2026, 11, 28, 20, tzinfo=UTC)
    for number in range(5):
        # Several at one moment, as in one transaction.
        AuditEntry.objects.create(team=team, at=at, actor_name=f"{number}", action="team.changed")
    assert [row["actor"] for row in exported(owner, team)] == ["4", "3", "2", "1", "0"]


@pytest.mark.django_db(transaction=True)
def test_names_that_a_spreadsheet_would_run_are_exported_as_text(team: Team, owner: User) -> None:
    hostile = Actor(103, '@SUM(1+1)*cmd|"/C calc"!A0', "203.0.113.9")
    issue_key(team=team, created_by=None, name='=HYPERLINK("http://evil.example")\n,"', actor=hostile)
    (row,) = exported(owner, team)
    assert row["object"] == '\'=HYPERLINK("http://evil.example")\n,"'
    assert row["actor"] == '\'@SUM(1+1)*cmd|"/C calc"!A0'


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
    assert re.findall(r'<td class="nowrap audit-what">([A-Z][^<]+)</td>', page) == [
        "Password changed",
        "Signed in",
        "Sign-in failed",
    ]


def test_what_a_stranger_types_as_his_address_is_not_kept(client: Client, db: None) -> None:
    client.post("/accounts/login/", {"login": "my-password@example.com", "password": "wrong"})
    assert not AuditEntry.objects.exists()
