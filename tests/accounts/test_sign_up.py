"""Signing up, in and out in the browser's way."""

from __future__ import annotations

import re

from django.conf import LazySettings
from django.core import mail
from django.test import Client

from accounts.models import Role, Team, User
from accounts.teams import make_personal_team, personal_team
from tests.accounts.conftest import PASSWORD, MakePerson


def sign_up(client: Client, email: str) -> None:
    answer = client.post("/accounts/signup/", {"email": email, "password1": PASSWORD, "password2": PASSWORD})
    assert (answer.status_code, answer["Location"]) == (302, "/playground/")


def test_signing_up_makes_a_person_with_a_team_of_their_own(client: Client, db: None, settings: LazySettings) -> None:
    sign_up(client, "Mei.Lin@Example.com")
    person = User.objects.get()
    assert person.email == "mei.lin@example.com"
    membership = person.memberships.get()
    assert membership.role == Role.OWNER
    assert (membership.team.name, membership.team.time_zone) == ("mei.lin", settings.TEAM_TIME_ZONE)
    assert client.get("/keys/").status_code == 200


def test_the_personal_team_is_one_however_often_it_is_made(make_person: MakePerson) -> None:
    person = make_person()
    assert personal_team(user=person) == personal_team(user=person)
    make_personal_team(instance=person, created=True)
    assert Team.objects.filter(personal_of=person).count() == person.memberships.count() == 1


def test_a_closed_site_takes_nobody_in(client: Client, db: None, settings: LazySettings) -> None:
    settings.SIGN_UP = "closed"
    client.post("/accounts/signup/", {"email": "a@example.com", "password1": PASSWORD, "password2": PASSWORD})
    assert not User.objects.exists()
    assert b"/accounts/signup/" not in client.get("/accounts/login/").content


def test_where_addresses_must_be_confirmed_the_mail_comes_before_the_sign_in(
    client: Client, db: None, settings: LazySettings
) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    form = {"email": "mei@example.com", "password1": PASSWORD, "password2": PASSWORD}
    assert client.post("/accounts/signup/", form)["Location"] == "/accounts/confirm-email/"
    credentials = {"login": "mei@example.com", "password": PASSWORD}
    assert client.post("/accounts/login/", credentials)["Location"] == "/accounts/confirm-email/"
    assert client.get("/keys/").status_code == 302
    (link,) = set(re.findall(r"http://testserver(/accounts/confirm-email/\S+)", str(mail.outbox[0].body)))
    client.post(link)
    client.post("/accounts/login/", credentials)
    assert client.get("/keys/").status_code == 200


def test_signing_out_and_in_again(client: Client, db: None) -> None:
    sign_up(client, "mei@example.com")
    assert client.post("/accounts/logout/").status_code == 302
    assert client.get("/keys/").status_code == 302
    answer = client.post("/accounts/login/?next=/keys/", {"login": "MEI@example.com", "password": PASSWORD})
    assert (answer.status_code, answer["Location"]) == (302, "/keys/")
    assert client.get("/keys/").status_code == 200


def test_a_wrong_password_stays_outside(client: Client, make_person: MakePerson) -> None:
    make_person(email="mei@example.com", password=PASSWORD)
    answer = client.post("/accounts/login/", {"login": "mei@example.com", "password": "wrong"})
    assert answer.status_code == 200
    assert "_auth_user_id" not in client.session


def test_guessing_passwords_is_throttled(client: Client, make_person: MakePerson) -> None:
    make_person(email="throttled@example.com", password=PASSWORD)
    for _ in range(10):
        client.post("/accounts/login/", {"login": "throttled@example.com", "password": "wrong"})
    answer = client.post("/accounts/login/", {"login": "throttled@example.com", "password": PASSWORD})
    assert "_auth_user_id" not in client.session
    assert b"Too many failed login attempts" in answer.content


def test_a_forgotten_password_is_reset_by_mail(client: Client, db: None) -> None:
    sign_up(client, "mei@example.com")
    client.post("/accounts/logout/")
    mail.outbox.clear()
    client.post("/accounts/password/reset/", {"email": "mei@example.com"})
    (link,) = re.findall(r"http://testserver(/accounts/password/reset/key/\S+)", str(mail.outbox[0].body))
    form = client.get(link)["Location"]
    client.post(form, {"password1": "copper-lantern-77", "password2": "copper-lantern-77"})
    client.post("/accounts/login/", {"login": "mei@example.com", "password": "copper-lantern-77"})
    assert client.get("/keys/").status_code == 200


def test_changing_the_password(client: Client, db: None) -> None:
    sign_up(client, "mei@example.com")
    client.post(
        "/accounts/password/change/",
        {"oldpassword": PASSWORD, "password1": "copper-lantern-77", "password2": "copper-lantern-77"},
    )
    assert User.objects.get().check_password("copper-lantern-77")


def test_the_language_switch_is_kept(client: Client, db: None) -> None:
    answer = client.post("/language/", {"language": "zh-hans", "next": "/accounts/login/"})
    assert answer["Location"] == "/accounts/login/"
    assert b'<html lang="zh-hans"' in client.get("/accounts/login/").content
