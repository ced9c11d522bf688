"""What a conversation tells the model."""

from __future__ import annotations

from typing import Any

import pytest

from accounts.models import Team, User
from playground.messages import messages_of
from playground.models import Image, Turn
from tests.playground.conftest import begin

CALL = {"id": "call_1", "name": "get_weather", "arguments": '{"city": "Chengdu"}'}
RESULT = {"id": "call_1", "name": "get_weather", "content": "21 degrees"}


def user(text: str) -> Turn:
    return Turn(role=Turn.Role.USER, content=text)


def assistant(text: str, **fields: Any) -> Turn:
    return Turn(role=Turn.Role.ASSISTANT, content=text, **fields)


def tool(*results: dict[str, str]) -> Turn:
    return Turn(role=Turn.Role.TOOL, tool_results=list(results))


def told(*turns: Turn) -> list[dict[str, Any]]:
    return messages_of(turns, sees_images=False)


def test_the_model_is_told_earlier_answers_without_their_thinking() -> None:
    assert told(user("one"), assistant("two", reasoning="because"), user("three")) == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]


def test_questions_around_a_failed_answer_become_one() -> None:
    assert told(user("one"), assistant(""), user("two")) == [{"role": "user", "content": "one\n\ntwo"}]


def test_a_call_goes_out_with_its_result() -> None:
    function = {"name": "get_weather", "arguments": '{"city": "Chengdu"}'}
    assert told(user("Weather?"), assistant("", tool_calls=[CALL]), tool(RESULT)) == [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    ]


def test_every_result_is_a_message_of_its_own() -> None:
    other = {"id": "call_2", "name": "get_weather", "content": "19 degrees"}
    messages = told(user("Weather?"), assistant("", tool_calls=[CALL, CALL | {"id": "call_2"}]), tool(RESULT, other))
    assert [message.get("tool_call_id") for message in messages[2:]] == ["call_1", "call_2"]


def test_a_call_that_nobody_answered_is_left_out() -> None:
    assert told(user("Weather?"), assistant("", tool_calls=[CALL]), user("Never mind.")) == [
        {"role": "user", "content": "Weather?\n\nNever mind."}
    ]
    assert told(user("Weather?"), assistant("I look.", tool_calls=[CALL]), user("No."))[1] == {
        "role": "assistant",
        "content": "I look.",
    }


@pytest.fixture
def with_picture(person: User, team: Team) -> Turn:
    turn = begin(person, team, "What is this?").question
    Image.objects.create(turn=turn, media_type="image/png", data=b"\x89PNG")
    return turn


def test_pictures_go_out_as_data_to_models_that_see_them(with_picture: Turn) -> None:
    assert messages_of([with_picture, assistant("A cat."), user("Sure?")]) == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            ],
        },
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "Sure?"},
    ]


def test_models_that_read_text_only_are_told_the_text(with_picture: Turn) -> None:
    assert told(with_picture) == [{"role": "user", "content": "What is this?"}]


def test_questions_with_pictures_are_joined_part_by_part(with_picture: Turn) -> None:
    (message,) = messages_of([with_picture, assistant(""), user("Well?")])
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "text"]
