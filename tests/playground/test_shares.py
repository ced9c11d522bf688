"""Showing a conversation to the team: by an explicit act, as far as it went then, until taken back."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Membership, Role, Team, User
from accounts.teams import personal_team
from playground import asking, conversations, shares
from playground.asking import Exchange, Said
from playground.models import Conversation, Share, Turn
from playground.pictures import Picture
from tests.playground.conftest import chosen

pytestmark = pytest.mark.django_db


@pytest.fixture
def exchange(person: User, team: Team) -> Exchange:
    said = Said("What is this?", [Picture("image/png", b"\x89PNG picture")])
    made = asking.begin(owner=person, team=team, said=said, chosen=chosen("Qwen3.8-27B"))
    finish(made, "A cat.")
    return made


def finish(exchange: Exchange, text: str) -> None:
    Turn.objects.filter(pk=exchange.answer.pk).update(state=Turn.State.DONE, content=text)


@pytest.fixture
def colleague(team: Team, stranger: User) -> User:
    Membership.objects.create(team=team, user=stranger, role=Role.VIEWER)
    return stranger


def shared(exchange: Exchange) -> Share:
    made = shares.share(conversation=exchange.conversation)
    assert made is not None
    return made


def page(client: Client, user: User, token: str) -> Any:
    client.force_login(user)
    return client.get(reverse("playground:shared", args=[token]))


def test_a_colleague_reads_it_and_can_change_nothing(client: Client, colleague: User, exchange: Exchange) -> None:
    html = page(client, colleague, shared(exchange).token).content.decode()
    assert "A cat." in html
    assert "hx-post" not in html
    own = reverse("playground:conversation", args=[exchange.conversation.pk])
    assert client.get(own).status_code == 404


def test_nobody_outside_the_team_reads_it(client: Client, stranger: User, exchange: Exchange) -> None:
    token = shared(exchange).token
    assert page(client, stranger, token).status_code == 404
    client.logout()
    assert client.get(reverse("playground:shared", args=[token])).status_code == 302


def test_without_the_act_there_is_no_link(client: Client, colleague: User, exchange: Exchange) -> None:
    client.force_login(colleague)
    for token in ("", "x", str(exchange.conversation.pk)):
        assert client.get(f"/playground/shared/{token}/").status_code == 404


def test_taken_back_it_is_gone_and_a_new_link_is_another(client: Client, colleague: User, exchange: Exchange) -> None:
    old = shared(exchange).token
    shares.unshare(conversation=exchange.conversation)
    assert page(client, colleague, old).status_code == 404
    assert shared(exchange).token != old


def test_what_is_written_later_is_shown_only_when_shared_again(
    client: Client, colleague: User, exchange: Exchange
) -> None:
    token = shared(exchange).token
    later = asking.ask(
        conversation=exchange.conversation, said=Said("And later?"), chosen=chosen(), parent_id=exchange.answer.pk
    )
    finish(later, "Much later.")
    assert "Much later." not in page(client, colleague, token).content.decode()
    assert shared(exchange).token == token
    assert "Much later." in page(client, colleague, token).content.decode()


def test_another_branch_chosen_later_does_not_change_what_is_shared(
    client: Client, colleague: User, exchange: Exchange
) -> None:
    token = shared(exchange).token
    finish(asking.answer_again(turn=exchange.answer, chosen=chosen()), "A dog.")
    html = page(client, colleague, token).content.decode()
    assert ("A cat." in html, "A dog." in html) == (True, False)


def test_what_the_owner_deletes_is_no_longer_shared(client: Client, colleague: User, exchange: Exchange) -> None:
    token = shared(exchange).token
    conversations.delete_turn(turn=exchange.answer)
    html = page(client, colleague, token).content.decode()
    assert ("What is this?" in html, "A cat." in html) == (True, False)
    conversations.delete(conversation=exchange.conversation)
    assert page(client, colleague, token).status_code == 404


def test_an_owner_who_left_the_team_shares_nothing(client: Client, colleague: User, exchange: Exchange) -> None:
    token = shared(exchange).token
    Membership.objects.filter(team=exchange.conversation.team, user=exchange.conversation.owner).delete()
    assert page(client, colleague, token).status_code == 404


def test_pictures_are_shown_with_what_is_shared_and_not_otherwise(
    client: Client, colleague: User, exchange: Exchange
) -> None:
    image = exchange.question.images.get()
    token = shared(exchange).token
    client.force_login(colleague)
    answer = client.get(reverse("playground:shared_image", args=[token, image.pk]))
    assert (answer.status_code, answer.content, answer["Content-Type"]) == (200, b"\x89PNG picture", "image/png")
    assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert client.get(reverse("playground:image", args=[exchange.conversation.pk, image.pk])).status_code == 404
    shares.unshare(conversation=exchange.conversation)
    assert client.get(reverse("playground:shared_image", args=[token, image.pk])).status_code == 404


def test_a_copy_goes_on_by_itself(client: Client, colleague: User, team: Team, exchange: Exchange) -> None:
    token = shared(exchange).token
    Membership.objects.filter(team=team, user=colleague).update(role=Role.MEMBER)
    client.force_login(colleague)
    answer = client.post(reverse("playground:copy_shared", args=[token]))
    copy = Conversation.objects.get(owner=colleague)
    assert answer["Location"] == f"/playground/c/{copy.pk}/"
    assert copy.team == personal_team(user=colleague)
    assert list(copy.turns.values_list("role", "content")) == [("user", "What is this?"), ("assistant", "A cat.")]
    first, second = copy.turns.all()
    assert second.parent == first
    assert bytes(first.images.get().data) == b"\x89PNG picture"
    assert second.request_id is None


def test_the_dialog_says_who_will_read_it(client: Client, person: User, exchange: Exchange) -> None:
    client.force_login(person)
    url, htmx = reverse("playground:share", args=[exchange.conversation.pk]), {"HX-Request": "true"}
    assert "Only you can see this conversation." in client.get(url, headers=htmx).content.decode()
    assert not Share.objects.exists()
    html = client.post(url, headers=htmx).content.decode()
    assert f"http://testserver/playground/shared/{Share.objects.get().token}/" in html
