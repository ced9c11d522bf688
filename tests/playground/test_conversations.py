"""Conversations as a whole: names, pins, what is deleted and had back, branches."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import Team, User
from playground import asking, conversations
from playground.asking import Exchange, Said
from playground.branches import tree_of
from playground.conversations import UNDO_SECONDS, purge
from playground.models import Conversation, Turn
from tests.playground.conftest import begin, chosen

pytestmark = pytest.mark.django_db


@pytest.fixture
def exchange(person: User, team: Team) -> Exchange:
    made = begin(person, team, "one")
    finish(made)
    return made


def finish(exchange: Exchange) -> None:
    Turn.objects.filter(pk=exchange.answer.pk).update(state=Turn.State.DONE, content="answer")


def path(conversation: Conversation) -> list[int]:
    return tree_of(conversation).path()


def age(seconds: float) -> None:
    before = timezone.now() - timedelta(seconds=seconds)
    Conversation.objects.exclude(deleted_at=None).update(deleted_at=before)
    Turn.objects.exclude(deleted_at=None).update(deleted_at=before)


def test_a_deleted_conversation_is_gone_and_can_be_had_back(person: User, team: Team, exchange: Exchange) -> None:
    conversations.delete(conversation=exchange.conversation)
    with pytest.raises(Conversation.DoesNotExist):
        conversations.own(person, team, exchange.conversation.pk)
    conversations.restore(user=person, team=team, conversation_id=exchange.conversation.pk)
    assert conversations.own(person, team, exchange.conversation.pk) == exchange.conversation


def test_somebody_else_cannot_have_it_back(team: Team, stranger: User, exchange: Exchange) -> None:
    conversations.delete(conversation=exchange.conversation)
    with pytest.raises(Conversation.DoesNotExist):
        conversations.restore(user=stranger, team=team, conversation_id=exchange.conversation.pk)


def test_deleting_names_the_answers_that_still_stream(person: User, team: Team) -> None:
    exchange = begin(person, team)
    assert conversations.delete(conversation=exchange.conversation) == [exchange.answer.pk]


def test_what_was_deleted_is_removed_for_good_after_a_while(exchange: Exchange) -> None:
    conversations.delete(conversation=exchange.conversation)
    age(UNDO_SECONDS - 60)
    purge()
    assert Turn.objects.count() == 2
    age(UNDO_SECONDS + 1)
    purge()
    assert (Conversation.objects.count(), Turn.objects.count()) == (0, 0)


def test_a_deleted_turn_takes_what_follows_with_it(exchange: Exchange) -> None:
    following = asking.ask(
        conversation=exchange.conversation, said=Said("two"), chosen=chosen(), parent_id=exchange.answer.pk
    )
    removed = conversations.delete_turn(turn=exchange.answer)
    assert (removed.count, removed.streaming) == (3, [following.answer.pk])
    assert path(exchange.conversation) == [exchange.question.pk]
    exchange.answer.refresh_from_db()
    conversations.restore_turn(turn=exchange.answer)
    assert path(exchange.conversation)[-1] == following.answer.pk


def test_the_alternative_next_to_a_deleted_one_takes_its_place(exchange: Exchange) -> None:
    second = asking.answer_again(turn=exchange.answer, chosen=chosen())
    conversations.delete_turn(turn=second.answer)
    assert path(exchange.conversation) == [exchange.question.pk, exchange.answer.pk]
    conversations.restore_turn(turn=second.answer)
    assert path(exchange.conversation) == [exchange.question.pk, second.answer.pk]


def test_a_purged_turn_goes_with_its_branch_and_nothing_else(exchange: Exchange) -> None:
    second = asking.answer_again(turn=exchange.answer, chosen=chosen())
    finish(second)
    asking.ask(conversation=exchange.conversation, said=Said("two"), chosen=chosen(), parent_id=second.answer.pk)
    conversations.delete_turn(turn=second.answer)
    age(UNDO_SECONDS + 1)
    purge()
    assert set(Turn.objects.values_list("pk", flat=True)) == {exchange.question.pk, exchange.answer.pk}


def test_a_long_conversation_is_purged_without_climbing_it_turn_by_turn(person: User, team: Team) -> None:
    conversation = Conversation.objects.create(owner=person, team=team, model="m")
    parent: Turn | None = None
    for number in range(1_200):
        parent = conversation.turns.create(role=Turn.Role.USER, content=str(number), parent=parent)
    conversations.delete_turn(turn=conversation.turns.earliest("pk"))
    age(UNDO_SECONDS + 1)
    purge()
    assert Turn.objects.count() == 0


def test_a_branch_comes_back_with_what_followed_it(exchange: Exchange) -> None:
    following = asking.ask(
        conversation=exchange.conversation, said=Said("two"), chosen=chosen(), parent_id=exchange.answer.pk
    )
    finish(following)
    finish(asking.answer_again(turn=exchange.answer, chosen=chosen()))
    assert following.answer.pk not in path(exchange.conversation)
    conversations.show_branch(turn=exchange.answer)
    assert path(exchange.conversation) == [
        exchange.question.pk, exchange.answer.pk, following.question.pk, following.answer.pk,
    ]  # fmt: skip


def test_a_search_finds_titles_and_messages(person: User, team: Team, stranger: User) -> None:
    by_title = begin(person, team, "Tides in the Bay of Fundy").conversation
    by_answer = begin(person, team, "Hello")
    Turn.objects.filter(pk=by_answer.answer.pk).update(content="The tides follow the moon.")
    begin(stranger, Team.objects.get(personal_of=stranger), "Tides of others")
    own = Conversation.objects.of(person, team)
    assert set(own.matching("tides")) == {by_title, by_answer.conversation}
    assert list(own.matching("TIDES moon")) == [by_answer.conversation]
    assert list(own.matching("tides nowhere")) == []


def test_a_search_takes_signs_for_what_they_are(person: User, team: Team) -> None:
    begin(person, team, "100 % of it")
    assert Conversation.objects.of(person, team).matching("0 %").count() == 1
    assert Conversation.objects.of(person, team).matching("1%0").count() == 0
