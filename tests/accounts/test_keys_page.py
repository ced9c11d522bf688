"""/keys/: a team's keys, and the one moment in which a secret is seen."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest
from django.apps import apps
from django.test import Client

from accounts.keys import issue_key
from accounts.models import ApiKey, KeyState, Role
from tests.accounts.conftest import MakePerson, MakeTeam, SignIn

HTMX = {"HX-Request": "true"}
SECRET = re.compile(rb"rc-[0-9a-f]{48}")


def secrets_in(content: bytes) -> set[str]:
    return {found.decode() for found in SECRET.findall(content)}


def create(client: Client, **fields: str) -> str:
    (secret,) = secrets_in(client.post("/keys/new/", {"name": "laptop"} | fields).content)
    return secret


def test_a_new_key_is_shown_with_its_secret_once(make_person: MakePerson, sign_in: SignIn) -> None:
    person = make_person()
    client = sign_in(person)
    secret = create(client, name="nightly batch")
    key = ApiKey.objects.get()
    assert (key.name, key.created_by, key.team, key.expires_at) == ("nightly batch", person, person.personal_team, None)
    page = client.get("/keys/").content
    assert not secrets_in(page)
    assert f"{secret[:7]}…{secret[-4:]}".encode() in page


def test_the_secret_is_in_no_table_no_session_no_log_and_no_cache(
    make_person: MakePerson, sign_in: SignIn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = sign_in(make_person())
    answer = client.post("/keys/new/", {"name": "laptop"})
    (secret,) = secrets_in(answer.content)
    assert "no-store" in answer["Cache-Control"]
    for model in apps.get_models():
        for row in model._default_manager.values():
            assert secret not in repr(row), model
    assert secret not in repr(dict(client.session))
    assert secret not in caplog.text
    assert secret not in str(answer.headers)


def test_the_snippets_use_the_address_the_reader_came_by(make_person: MakePerson, sign_in: SignIn) -> None:
    content = sign_in(make_person()).post("/keys/new/", {"name": "laptop"}).content.decode()
    assert "curl http://testserver/v1/models" in content
    assert 'base_url="http://testserver/v1"' in content


def test_an_expiry_is_kept_and_a_strange_one_refused(make_person: MakePerson, sign_in: SignIn) -> None:
    client = sign_in(make_person())
    create(client, lifetime="30")
    key = ApiKey.objects.get()
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days == 29 or (key.expires_at - key.created_at).days == 30
    assert not secrets_in(client.post("/keys/new/", {"name": "x", "lifetime": "9999"}).content)
    assert not secrets_in(client.post("/keys/new/", {"name": ""}).content)
    assert ApiKey.objects.count() == 1


def test_htmx_gets_the_part_and_a_browser_the_page(make_person: MakePerson, sign_in: SignIn) -> None:
    client = sign_in(make_person())
    for address, part in (("/keys/", b'id="key-list"'), ("/keys/new/", b'name="lifetime"')):
        whole, partial = client.get(address).content, client.get(address, headers=HTMX).content
        assert part in whole
        assert part in partial
        assert b"<html" in whole
        assert b"<html" not in partial
    issued = client.post("/keys/new/", {"name": "laptop"}, headers=HTMX).content
    assert len(secrets_in(issued)) == 1
    assert b'id="key-list" hx-swap-oob="true"' in issued


def test_a_revoked_key_is_unusable_and_stays_listed(make_person: MakePerson, sign_in: SignIn) -> None:
    client = sign_in(make_person())
    create(client)
    key = ApiKey.objects.get()
    assert client.post(f"/keys/{key.pk}/revoke/")["Location"] == "/keys/"
    key.refresh_from_db()
    assert key.state == KeyState.REVOKED
    assert not ApiKey.objects.usable().exists()
    page = client.get("/keys/").content.decode()
    assert key.hint in page
    assert f"/keys/{key.pk}/revoke/" not in page


def test_revoking_by_htmx_answers_the_list(make_person: MakePerson, sign_in: SignIn) -> None:
    client = sign_in(make_person())
    create(client)
    answer = client.post(f"/keys/{ApiKey.objects.get().pk}/revoke/", headers=HTMX)
    assert b'id="key-list"' in answer.content
    assert b"Revoked" in answer.content


def test_a_key_is_not_revoked_by_a_link(make_person: MakePerson, sign_in: SignIn) -> None:
    client = sign_in(make_person())
    create(client)
    assert client.get(f"/keys/{ApiKey.objects.get().pk}/revoke/").status_code == HTTPStatus.METHOD_NOT_ALLOWED


@pytest.mark.parametrize("role", Role)
def test_another_teams_key_does_not_exist(
    role: Role, make_person: MakePerson, make_team: MakeTeam, sign_in: SignIn
) -> None:
    person = make_person()
    foreign = issue_key(team=make_team(name="Elsewhere", **{role.value: person}), created_by=person, name="x").key
    client = sign_in(person)
    assert client.post(f"/keys/{foreign.pk}/revoke/").status_code == HTTPStatus.NOT_FOUND
    assert foreign.hint not in client.get("/keys/").content.decode()
    foreign.refresh_from_db()
    assert foreign.state == KeyState.ACTIVE


@pytest.mark.parametrize(
    ("role", "create_status", "own_status", "others_status"),
    [
        (Role.OWNER, 200, 302, 302),
        (Role.ADMIN, 200, 302, 302),
        (Role.MEMBER, 200, 302, 404),
        (Role.VIEWER, 403, 403, 403),
    ],
)
def test_each_role_on_the_page(
    role: Role,
    create_status: int,
    own_status: int,
    others_status: int,
    make_person: MakePerson,
    make_team: MakeTeam,
    sign_in: SignIn,
) -> None:
    person = make_person()
    team = make_team(**{role.value: person})
    own = issue_key(team=team, created_by=person, name="own").key
    others = issue_key(team=team, created_by=make_person(), name="another's").key
    client = sign_in(person, team=team)
    page = client.get("/keys/").content.decode()
    assert ("/keys/new/" in page) is (create_status == HTTPStatus.OK)
    assert (f"/keys/{own.pk}/revoke/" in page) is (own_status == HTTPStatus.FOUND)
    assert (f"/keys/{others.pk}/revoke/" in page) is (others_status == HTTPStatus.FOUND)
    assert client.post("/keys/new/", {"name": "new"}).status_code == create_status
    assert client.post(f"/keys/{own.pk}/revoke/").status_code == own_status
    assert client.post(f"/keys/{others.pk}/revoke/").status_code == others_status


def test_a_name_is_text_not_markup(make_person: MakePerson, sign_in: SignIn) -> None:
    client = sign_in(make_person())
    create(client, name='<img src=x onerror="alert(1)">')
    assert b"<img src=x" not in client.get("/keys/").content


def test_a_long_list_comes_in_pages(make_person: MakePerson, sign_in: SignIn) -> None:
    person = make_person()
    for number in range(51):
        issue_key(team=person.personal_team, created_by=person, name=f"key {number}")
    client = sign_in(person)
    assert client.get("/keys/").content.count(b"<tr") == 51
    assert client.get("/keys/?page=2").content.count(b"<tr") == 2


def test_the_keys_of_a_person_who_is_gone_stay_the_teams(
    make_person: MakePerson, make_team: MakeTeam, sign_in: SignIn
) -> None:
    owner, gone = make_person(), make_person()
    team = make_team(owner=owner, member=gone)
    key = issue_key(team=team, created_by=gone, name="batch").key
    gone.delete()
    assert key.hint in sign_in(owner, team=team).get("/keys/").content.decode()


def test_the_latest_use_is_shown_whatever_order_uses_arrive_in(make_person: MakePerson, sign_in: SignIn) -> None:
    person = make_person()
    key = issue_key(team=person.personal_team, created_by=person, name="batch").key
    noon = datetime(2026, 11, 29, 12, tzinfo=UTC)
    for moment in (noon, noon - timedelta(hours=1)):
        ApiKey.objects.mark_used({key.pk: moment, 999: moment})
    key.refresh_from_db()
    assert key.last_used_at == noon
    assert "2026-11-29T20:00:00+08:00" in sign_in(person).get("/keys/").content.decode()
