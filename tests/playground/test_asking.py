"""Asking: every verb adds to the tree, shows its path, and tells the model that path and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import Team, User
from playground import asking
from playground.asking import Exchange, Result, Said, title_of
from playground.branches import tree_of
from playground.models import Conversation, Image, Turn
from playground.pictures import MAX_PICTURES_BYTES, Picture
from tests.playground.conftest import begin, chosen

pytestmark = pytest.mark.django_db


def answered(exchange: Exchange, text: str, **fields: Any) -> Turn:
    """Its answer, as if the model had given it."""
    turn = exchange.answer
    for name, value in ({"state": Turn.State.DONE, "content": text} | fields).items():
        setattr(turn, name, value)
    turn.save()
    return turn


def told(exchange: Exchange) -> list[Any]:
    return [message["content"] for message in exchange.body()["messages"]]


def shown(conversation: Conversation) -> list[str]:
    turns = conversation.turns.in_bulk(path := tree_of(conversation).path())
    return [turns[id].content for id in path]


@pytest.fixture
def first(person: User, team: Team) -> Exchange:
    return begin(person, team, "one", temperature=0.5)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Why is the sky blue?", "Why is the sky blue?"),
        ("  two\n\nlines ", "two lines"),
        (
            "Write a function that merges overlapping ranges, and then test it thoroughly",
            "Write a function that merges overlapping ranges, and then…",
        ),
        ("天" * 70, "天" * 60 + "…"),
        ("x" * 61, "x" * 60 + "…"),
    ],
)
def test_a_title_is_the_first_words(text: str, title: str) -> None:
    assert title_of(text) == title


def test_a_conversation_begins_with_a_question_and_an_empty_answer(first: Exchange) -> None:
    assert told(first) == ["one"]
    assert [(turn.role, turn.state, turn.content) for turn in first.conversation.turns.all()] == [
        ("user", "done", "one"),
        ("assistant", "streaming", ""),
    ]
    assert first.answer.parent_id == first.question.pk
    assert first.conversation.settings == {"temperature": 0.5}


def test_one_answer_at_a_time(first: Exchange) -> None:
    with pytest.raises(asking.Busy):
        asking.ask(conversation=first.conversation, said=Said("two"), chosen=chosen(), parent_id=first.answer.pk)
    assert first.conversation.turns.count() == 2


def test_the_next_question_goes_out_with_its_own_model_and_settings(first: Exchange) -> None:
    answer = answered(first, "answer")
    following = asking.ask(
        conversation=first.conversation, said=Said("two"), chosen=chosen("other", top_p=1), parent_id=answer.pk
    )
    assert told(following) == ["one", "answer", "two"]
    first.conversation.refresh_from_db()
    assert (first.conversation.model, first.conversation.settings) == ("other", {"top_p": 1})
    assert following.answer.model == "other"


def test_a_question_follows_the_turn_that_its_page_shows(first: Exchange) -> None:
    old = answered(first, "first answer")
    answered(asking.answer_again(turn=old, chosen=chosen()), "second answer")
    # A tab that still shows the first answer asks on.
    following = asking.ask(conversation=first.conversation, said=Said("two"), chosen=chosen(), parent_id=old.pk)
    assert told(following) == ["one", "first answer", "two"]
    assert shown(first.conversation) == ["one", "first answer", "two", ""]


def test_a_question_after_a_deleted_turn_is_not_asked(first: Exchange) -> None:
    answer = answered(first, "answer")
    Turn.objects.filter(pk=first.question.pk).update(deleted_at=answer.created_at)
    with pytest.raises(asking.Gone):
        asking.ask(conversation=first.conversation, said=Said("two"), chosen=chosen(), parent_id=answer.pk)


def test_answering_again_keeps_the_answer_before(first: Exchange) -> None:
    again = asking.answer_again(turn=answered(first, "old"), chosen=chosen())
    assert told(again) == ["one"]
    assert shown(first.conversation) == ["one", ""]
    assert [turn.content for turn in first.conversation.turns.all()] == ["one", "old", ""]


def test_an_answer_that_failed_without_a_word_gives_way(first: Exchange) -> None:
    again = asking.answer_again(turn=answered(first, "", state=Turn.State.FAILED), chosen=chosen())
    assert [turn.pk for turn in first.conversation.turns.all()] == [first.question.pk, again.answer.pk]


def test_an_earlier_answer_again_leaves_what_followed_in_its_branch(first: Exchange) -> None:
    old = answered(first, "old")
    answered(
        asking.ask(conversation=first.conversation, said=Said("two"), chosen=chosen(), parent_id=old.pk), "old two"
    )
    asking.answer_again(turn=old, chosen=chosen())
    assert shown(first.conversation) == ["one", ""]
    assert first.conversation.turns.count() == 5


def test_editing_begins_a_branch_with_the_same_pictures(person: User, team: Team) -> None:
    said = Said("a cat?", [Picture("image/png", b"\x89PNG one")])
    exchange = asking.begin(owner=person, team=team, said=said, chosen=chosen("Qwen3.8-27B"))
    answered(exchange, "yes")
    edited = asking.edit(turn=exchange.question, text="a dog?", chosen=chosen("Qwen3.8-27B"))
    assert told(edited)[0][0] == {"type": "text", "text": "a dog?"}
    assert shown(exchange.conversation) == ["a dog?", ""]
    assert [bytes(image.data) for image in Image.objects.all()] == [b"\x89PNG one"] * 2


def test_results_go_out_after_their_calls(first: Exchange) -> None:
    answer = answered(first, "", tool_calls=[{"id": "c", "name": "f", "arguments": "{}"}])
    given = asking.give_results(turn=answer, results=[Result("c", "f", "42")], chosen=chosen())
    assert [message["role"] for message in given.body()["messages"]] == ["user", "assistant", "tool"]
    assert given.question.role == Turn.Role.TOOL


def test_a_comparison_puts_one_question_to_every_model(person: User, team: Team) -> None:
    models = ["DeepSeek-V4-Flash", "Qwen3.8-27B", "GLM-5.3-Flash"]
    exchanges = asking.compare(owner=person, team=team, said=Said("Hi"), chosen=[chosen(model) for model in models])
    assert [exchange.answer.model for exchange in exchanges] == models
    assert {exchange.answer.parent_id for exchange in exchanges} == {exchanges[0].question.pk}
    conversation = exchanges[0].conversation
    assert conversation.is_comparison
    assert tree_of(conversation).path() == [exchanges[0].question.pk, exchanges[0].answer.pk]
    assert all(told(exchange) == ["Hi"] for exchange in exchanges)


def test_what_portable_mode_changes_is_kept_with_the_answer(person: User, team: Team) -> None:
    exchange = begin(person, team, model="Qwen3.8-27B", effort="high", portable=True)
    assert exchange.body()["reasoning_effort"] == "high"
    exchange.answer.refresh_from_db()
    assert exchange.answer.adapted == ["reasoning_effort:high->xhigh"]


def test_a_model_that_sees_no_pictures_is_asked_without_them_and_says_so(person: User, team: Team) -> None:
    said = Said("a cat?", [Picture("image/png", b"\x89PNG")])
    exchange = asking.begin(owner=person, team=team, said=said, chosen=chosen("Qwen3.8-27B"))
    answer = answered(exchange, "yes")
    following = asking.ask(
        conversation=exchange.conversation, said=Said("sure?"), chosen=chosen("MiniCPM5-2B"), parent_id=answer.pk
    )
    assert told(following) == ["a cat?", "yes", "sure?"]
    assert following.answer.adapted == [asking.PICTURES_LEFT_OUT]


def test_more_pictures_than_a_request_takes_are_not_sent(person: User, team: Team) -> None:
    half = Picture("image/png", b"\x89PNG" + bytes(MAX_PICTURES_BYTES // 2))
    exchange = asking.begin(owner=person, team=team, said=Said("1", [half]), chosen=chosen("Qwen3.8-27B"))
    answer = answered(exchange, "yes")
    with pytest.raises(asking.TooLarge):
        asking.ask(
            conversation=exchange.conversation,
            said=Said("2", [half]),
            chosen=chosen("Qwen3.8-27B"),
            parent_id=answer.pk,
        )
    assert exchange.conversation.turns.count() == 2
