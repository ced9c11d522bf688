"""The list of conversations: days, pins, search, pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Team, User
from playground.chat_page import CONVERSATIONS_A_PAGE
from playground.models import Conversation

pytestmark = pytest.mark.django_db
LIST = "playground:conversations"


@pytest.fixture
def browser(client: Client, person: User) -> Client:
    client.force_login(person)
    return client


def conversation(person: User, team: Team, title: str, **fields: Any) -> Conversation:
    return Conversation.objects.create(owner=person, team=team, title=title, model="m", **fields)


def listed(browser: Client, **data: str) -> list[str]:
    """Headings in angle brackets, then the titles under them."""
    html = browser.get(reverse(LIST), data, headers={"HX-Request": "true"}).content.decode()
    found = re.findall(r'chat-list-heading">([^<]+)<|title="([^"]+)"', html)
    return [f"<{heading}>" if heading else title for heading, title in found]


def test_conversations_stand_under_their_days(
    browser: Client, person: User, team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Late in the evening of UTC it is the next day in Shanghai.
    now = datetime(2026, 11, 10, 20, tzinfo=UTC)
    monkeypatch.setattr(timezone, "now", lambda: now)
    Team.objects.filter(pk=team.pk).update(time_zone="Asia/Shanghai")
    for title, hours in {"a": 1, "b": 5, "c": 40, "d": 24 * 30, "e": 24 * 60}.items():
        conversation(person, team, title, updated_at=now - timedelta(hours=hours))
    assert listed(browser) == ["<Today>", "a", "<Yesterday>", "b", "<Last 7 days>", "c", "<Earlier>", "d", "e"]


def test_the_one_whose_page_asks_is_marked_pinned_or_not(browser: Client, person: User, team: Team) -> None:
    asked_from = conversation(person, team, "asked from")
    conversation(person, team, "other")
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver/playground/c/{asked_from.pk}/"}
    for pinned_at in (None, timezone.now()):
        Conversation.objects.filter(pk=asked_from.pk).update(pinned_at=pinned_at)
        html = browser.get(reverse(LIST), headers=headers).content.decode()
        assert re.findall(r'aria-current="page" title="([^"]+)"', html) == ["asked from"]


def test_pinned_ones_come_first_and_once(browser: Client, person: User, team: Team) -> None:
    old = conversation(person, team, "old", updated_at=timezone.now() - timedelta(days=90))
    conversation(person, team, "new")
    url = reverse("playground:pin", args=[old.pk])
    assert browser.post(url, headers={"HX-Request": "true"}).status_code == 200
    assert listed(browser) == ["<Pinned>", "old", "<Today>", "new"]
    browser.post(url, headers={"HX-Request": "true"})
    assert listed(browser) == ["<Today>", "new", "<Earlier>", "old"]


def test_a_page_goes_on_under_the_same_heading(browser: Client, person: User, team: Team) -> None:
    Conversation.objects.bulk_create(
        Conversation(owner=person, team=team, title=f"c{number:02}", model="m") for number in range(40)
    )
    html = browser.get(reverse(LIST), headers={"HX-Request": "true"}).content.decode()
    assert html.count('title="c') == CONVERSATIONS_A_PAGE
    more = re.search(r'hx-get="([^"]+)"', html)
    assert more is not None
    rest = browser.get(more[1], headers={"HX-Request": "true"}).content.decode()
    assert (rest.count('title="c'), rest.count("chat-list-heading")) == (10, 0)


@pytest.mark.parametrize(
    "after", ["x", "2026-01-01,x", ",", "2026-99-99T00:00:00,00000000-0000-0000-0000-000000000000"]
)
def test_a_cursor_that_is_none_begins_anew(browser: Client, person: User, team: Team, after: str) -> None:
    conversation(person, team, "a")
    assert listed(browser, after=after) == ["<Today>", "a"]


def test_a_search_lists_what_it_finds_without_headings(browser: Client, person: User, team: Team) -> None:
    conversation(person, team, "Tides")
    conversation(person, team, "Waves")
    assert listed(browser, q="tide") == ["Tides"]
    html = browser.get(reverse(LIST), {"q": "zzz"}, headers={"HX-Request": "true"}).content.decode()
    assert "Nothing found." in html


def test_after_a_rename_the_list_is_as_it_was_searched(browser: Client, person: User, team: Team) -> None:
    tides = conversation(person, team, "Tides")
    conversation(person, team, "Waves")
    url = reverse("playground:rename", args=[tides.pk])
    html = browser.post(url, {"title": "New tides", "q": "tides"}, headers={"HX-Request": "true"}).content.decode()
    assert 'title="New tides"' in html
    assert 'title="Waves"' not in html
