"""The list of one's sessions: which browsers are signed in, and ending them from afar."""

from __future__ import annotations

import re
from http import HTTPStatus

import pytest
from django.test import Client

from accounts.models import User
from tests.accounts.conftest import PASSWORD, MakePerson

LIST = "/accounts/sessions/"


@pytest.fixture
def person(make_person: MakePerson) -> User:
    return make_person(email="mei@example.com", password=PASSWORD)


def browser(person: User, name: str) -> Client:
    """Signed in by the page, under that user agent."""
    client = Client(headers={"user-agent": name})
    client.post("/accounts/login/", {"login": person.email, "password": PASSWORD})
    assert is_in(client)
    return client


def is_in(client: Client) -> bool:
    return client.get("/keys/").status_code == HTTPStatus.OK


def ends(client: Client) -> list[str]:
    """The addresses that end the others."""
    return re.findall(r'action="(/accounts/sessions/\d+/end/)"', client.get(LIST).content.decode())


def test_the_list_names_every_browser_and_which_one_this_is(person: User) -> None:
    laptop, _phone = browser(person, "Laptop"), browser(person, "Phone")
    page = laptop.get(LIST).content.decode()
    assert re.findall(r"<td>(Laptop|Phone)(?: <span[^>]*>(This one)</span>)?</td>", page) == [
        ("Laptop", "This one"),
        ("Phone", ""),
    ]


def test_another_browser_is_signed_out_and_this_one_stays(person: User) -> None:
    laptop, phone = browser(person, "Laptop"), browser(person, "Phone")
    (end,) = ends(laptop)
    assert laptop.post(end)["Location"] == LIST
    assert (is_in(laptop), is_in(phone)) == (True, False)


def test_all_others_are_signed_out_at_once(person: User) -> None:
    laptop, phone, tablet = (browser(person, name) for name in ("Laptop", "Phone", "Tablet"))
    laptop.post(LIST)
    assert (is_in(laptop), is_in(phone), is_in(tablet)) == (True, False, False)


def test_nobody_ends_somebody_elses_session(person: User, make_person: MakePerson) -> None:
    laptop, _phone = browser(person, "Laptop"), browser(person, "Phone")
    stranger = browser(make_person(email="tom@example.com", password=PASSWORD), "Stranger")
    (end,) = ends(laptop)
    assert stranger.post(end).status_code == HTTPStatus.NOT_FOUND
    assert len(ends(laptop)) == 1
