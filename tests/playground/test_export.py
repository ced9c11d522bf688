"""A conversation taken along."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Team, User
from playground import asking, conversations
from playground.asking import Exchange, Said
from playground.export import as_json, as_markdown, file_name
from playground.models import Turn
from playground.pictures import Picture
from tests.playground.conftest import chosen

pytestmark = pytest.mark.django_db


@pytest.fixture
def exchange(person: User, team: Team) -> Exchange:
    said = Said("What is 中文?", [Picture("image/png", b"\x89PNG")])
    made = asking.begin(owner=person, team=team, said=said, chosen=chosen("Qwen3.8-27B", system="Be brief."))
    fill(made.answer, content="A *script*.", reasoning="Let me\nsee.")
    return made


def fill(turn: Turn, **fields: Any) -> None:
    Turn.objects.filter(pk=turn.pk).update(**({"state": Turn.State.DONE} | fields))


def test_markdown_is_what_is_shown(exchange: Exchange) -> None:
    exchange.conversation.refresh_from_db()
    created = f"{exchange.conversation.created_at:%Y-%m-%d %H:%M} UTC"
    assert as_markdown(exchange.conversation) == (
        f"# What is 中文?\n\n{created}\n\n## System prompt\n\nBe brief.\n\n## You\n\n[1 pictures]\n\nWhat is 中文?\n\n"
        "## Qwen3.8-27B\n\n> Let me\n> see.\n\nA *script*.\n"
    )


def test_markdown_fences_what_holds_fences_and_says_what_is_not_complete(exchange: Exchange) -> None:
    call = {"id": "c", "name": "f", "arguments": '{"x": "```"}'}
    fill(exchange.answer, content="", tool_calls=[call], state=Turn.State.STOPPED, reasoning="")
    text = as_markdown(exchange.conversation)
    assert '`f`\n\n````json\n{"x": "```"}\n````' in text
    assert "*This answer is not complete.*" in text


def test_json_is_everything_with_all_branches(exchange: Exchange) -> None:
    again = asking.answer_again(turn=exchange.answer, chosen=chosen())
    fill(again.answer, content="Chinese.")
    document = json.loads(as_json(exchange.conversation))
    assert document["format"] == "token-factory-conversation/1"
    assert [(turn["role"], turn["content"], turn["shown"]) for turn in document["turns"]] == [
        ("user", "What is 中文?", True),
        ("assistant", "A *script*.", False),
        ("assistant", "Chinese.", True),
    ]
    assert document["turns"][0]["images"] == ["data:image/png;base64,iVBORw=="]
    assert document["turns"][1]["parent"] == document["turns"][0]["id"]


def test_what_was_deleted_is_in_no_export(exchange: Exchange) -> None:
    following = asking.ask(
        conversation=exchange.conversation, said=Said("secret"), chosen=chosen(), parent_id=exchange.answer.pk
    )
    fill(following.answer, content="secret too")
    conversations.delete_turn(turn=exchange.answer)
    for text in (as_markdown(exchange.conversation), as_json(exchange.conversation)):
        assert "secret" not in text
        assert "A *script*." not in text


@pytest.mark.parametrize(
    ("title", "disposition"),
    [
        ("Tides", "attachment; filename=\"Tides.md\"; filename*=UTF-8''Tides.md"),
        ("潮汐", "attachment; filename=\"conversation.md\"; filename*=UTF-8''%E6%BD%AE%E6%B1%90.md"),
        ('a"; x\r\nb/../c', "attachment; filename=\"a xbc.md\"; filename*=UTF-8''a%20xbc.md"),
    ],
)
def test_the_name_of_the_file_is_the_title(exchange: Exchange, title: str, disposition: str) -> None:
    exchange.conversation.title = title
    assert file_name(exchange.conversation, ending="md") == disposition


@pytest.mark.parametrize(("form", "media_type"), [("md", "text/markdown; charset=utf-8"), ("json", "application/json")])
def test_a_file_is_handed_out_to_its_owner_alone(
    client: Client, person: User, stranger: User, exchange: Exchange, form: str, media_type: str
) -> None:
    url = reverse("playground:export", args=[exchange.conversation.pk, form])
    client.force_login(person)
    answer = client.get(url)
    assert (answer.status_code, answer["Content-Type"]) == (200, media_type)
    assert answer["Content-Disposition"].startswith("attachment; ")
    client.force_login(stranger)
    assert client.get(url).status_code == 404
