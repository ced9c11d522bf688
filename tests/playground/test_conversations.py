"""What a conversation tells the model, and how it is called."""

from __future__ import annotations

import pytest

from accounts.models import Team, User
from playground import conversations
from playground.conversations import messages_of, title_of
from playground.models import Turn


def user(text: str) -> Turn:
    return Turn(role=Turn.Role.USER, content=text)


def assistant(text: str, *, reasoning: str = "") -> Turn:
    return Turn(role=Turn.Role.ASSISTANT, content=text, reasoning=reasoning)


def test_the_model_is_told_earlier_answers_without_their_thinking() -> None:
    turns = [user("one"), assistant("two", reasoning="because"), user("three")]
    assert messages_of(turns) == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]


def test_questions_around_a_failed_answer_become_one() -> None:
    assert messages_of([user("one"), assistant(""), user("two")]) == [{"role": "user", "content": "one\n\ntwo"}]


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


@pytest.fixture
def exchange(person: User, team: Team) -> conversations.Exchange:
    return conversations.begin(owner=person, team=team, text="one", model="m", settings={"temperature": 0.5})


def test_a_conversation_begins_with_a_question_and_an_empty_answer(exchange: conversations.Exchange) -> None:
    assert exchange.messages == [{"role": "user", "content": "one"}]
    assert [(turn.role, turn.state, turn.content) for turn in exchange.conversation.turns.all()] == [
        ("user", "done", "one"),
        ("assistant", "streaming", ""),
    ]
    assert exchange.conversation.settings == {"temperature": 0.5}


def test_one_answer_at_a_time(exchange: conversations.Exchange) -> None:
    with pytest.raises(conversations.Busy):
        conversations.ask(conversation=exchange.conversation, text="two", model="m", settings={})
    assert exchange.conversation.turns.count() == 2


def test_the_next_question_goes_out_with_its_own_model_and_settings(exchange: conversations.Exchange) -> None:
    exchange.conversation.turns.filter(state="streaming").update(state="done", content="answer")
    following = conversations.ask(conversation=exchange.conversation, text="two", model="other", settings={"top_p": 1})
    assert [message["content"] for message in following.messages] == ["one", "answer", "two"]
    exchange.conversation.refresh_from_db()
    assert (exchange.conversation.model, exchange.conversation.settings) == ("other", {"top_p": 1})
    assert following.answer.model == "other"


def test_answering_again_forgets_the_last_answer_only(exchange: conversations.Exchange) -> None:
    exchange.conversation.turns.filter(state="streaming").update(state="failed", content="half")
    again = conversations.answer_again(conversation=exchange.conversation, model="m", settings={})
    assert again.messages == [{"role": "user", "content": "one"}]
    assert [turn.content for turn in exchange.conversation.turns.all()] == ["one", ""]
