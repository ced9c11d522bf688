"""What a page that was loaded earlier lacks: another tab or device went on with its conversation."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Team, User
from playground import asking, conversations
from playground.asking import Exchange, Said
from playground.models import Turn
from tests.playground.conftest import begin, chosen

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def browser(client: Client, person: User) -> Client:
    client.force_login(person)
    return client


@pytest.fixture
def exchange(person: User, team: Team) -> Exchange:
    made = begin(person, team, "one")
    finish(made)
    return made


def finish(exchange: Exchange) -> None:
    Turn.objects.filter(pk=exchange.answer.pk).update(state=Turn.State.DONE, content="answer")


def ask_more(exchange: Exchange) -> Exchange:
    return asking.ask(
        conversation=exchange.conversation, said=Said("two"), chosen=chosen(), parent_id=exchange.answer.pk
    )


class Tab:
    """A page of the conversation as it was when it was loaded, or last given something."""

    def __init__(self, browser: Client, exchange: Exchange) -> None:
        self.browser, self.exchange = browser, exchange
        self.shown: list[int] = []
        # What any change of the turns is answered with.
        url = reverse("playground:show_branch", args=[exchange.conversation.pk, exchange.answer.pk])
        self._take(browser.post(url, headers=HTMX))

    def look(self) -> str:
        """How what is new is to be put into the page; nothing where nothing is."""
        known = {"mark": self.mark, "first": self.shown[0], "last": self.shown[-1]}
        url = reverse("playground:news", args=[self.exchange.conversation.pk])
        response = self.browser.get(url, known, headers=HTMX)
        return self._take(response) if response.status_code == 200 else ""

    def _take(self, response: Any) -> str:
        html = response.content.decode()
        turns = [int(pk) for pk in re.findall(r'<article class="turn [^>]*id="turn-(\d+)"', html)]
        (self.mark,) = re.findall(r'id="path-mark" value="(\w*)"', html)
        how = str(response.headers.get("HX-Reswap", "innerHTML"))
        self.shown = self.shown + turns if how == "beforeend" else turns
        assert self.shown[-1:] == [int(pk) for pk in re.findall(r'id="parent-id"[^>]* value="(\d+)"', html)]
        return how


def test_a_page_that_shows_everything_is_told_nothing(browser: Client, exchange: Exchange) -> None:
    tab = Tab(browser, exchange)
    assert tab.look() == ""


def test_new_turns_come_under_those_that_are_shown(browser: Client, exchange: Exchange) -> None:
    tab = Tab(browser, exchange)
    more = ask_more(exchange)
    assert tab.look() == "beforeend"
    assert tab.shown == [exchange.question.pk, exchange.answer.pk, more.question.pk, more.answer.pk]
    finish(more)
    assert tab.look() == ""


def test_an_alternative_a_tools_result_and_an_undo_change_what_is_shown(browser: Client, exchange: Exchange) -> None:
    tab = Tab(browser, exchange)
    other = asking.answer_again(turn=exchange.answer, chosen=chosen())
    finish(other)
    assert tab.look() == "innerHTML"
    assert tab.shown == [exchange.question.pk, other.answer.pk]
    told = asking.give_results(turn=other.answer, results=[], chosen=chosen())
    finish(told)
    assert tab.look() == "innerHTML"
    assert tab.shown == [exchange.question.pk, other.answer.pk, told.question.pk, told.answer.pk]
    conversations.delete_turn(turn=other.answer)
    assert tab.look() == "innerHTML"
    assert tab.shown == [exchange.question.pk, exchange.answer.pk]
    conversations.restore_turn(turn=other.answer)
    assert tab.look() == "innerHTML"
    assert tab.shown == [exchange.question.pk, other.answer.pk, told.question.pk, told.answer.pk]


def test_what_had_been_scrolled_up_to_stays_shown(browser: Client, exchange: Exchange) -> None:
    tab = Tab(browser, exchange)
    made = [exchange]
    for _ in range(6):
        made.append(ask_more(made[-1]))
        finish(made[-1])
        tab.look()
    asking.answer_again(turn=made[-1].answer, chosen=chosen())
    assert tab.look() == "innerHTML"
    assert tab.shown[0] == exchange.question.pk
    assert len(tab.shown) == 14


def test_an_answer_that_goes_on_though_it_was_taken_for_cut_off_is_shown_growing(
    browser: Client, exchange: Exchange
) -> None:
    tab = Tab(browser, exchange)
    Turn.objects.filter(pk=exchange.answer.pk).update(state=Turn.State.STREAMING)
    assert tab.look() == "innerHTML"
