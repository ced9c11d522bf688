"""An account that ends takes along what the playground kept of the person, and nothing of anybody else."""

from __future__ import annotations

import uuid

import pytest

from accounts.account_end import delete_account
from accounts.audit import Actor
from accounts.members import KeysOfLeaver
from accounts.models import Membership, Role, Team, User
from playground import asking, conversations, shares
from playground.asking import Said
from playground.history import Decision, Document, Speech
from playground.models import Conversation, Share, Turn
from tests.playground.conftest import chosen

pytestmark = pytest.mark.django_db
KEPT = (Document, Speech, Decision)


def keep_one_of_each(user: User, team: Team) -> None:
    made = asking.begin(owner=user, team=team, said=Said("Hello", []), chosen=chosen("Qwen3.8-27B"))
    Turn.objects.filter(pk=made.answer.pk).update(state=Turn.State.DONE, content="Hello.")
    assert shares.share(conversation=made.conversation)
    common = {"owner": user, "team": team, "model": "m"}
    Document.objects.create(**common, name="a.pdf", media_type="application/pdf", size_bytes=9, pages=1)
    Speech.objects.create(**common, text="Hello", content_type="audio/wav", request_id=uuid.uuid4())
    Decision.objects.create(**common, state="s", questions={}, answers={}, request_id=uuid.uuid4())


def test_what_was_kept_goes_with_the_account(person: User, team: Team, stranger: User) -> None:
    Membership.objects.create(team=team, user=stranger, role=Role.OWNER)
    for user in (person, stranger):
        keep_one_of_each(user, team)
    delete_account(user=person, name="Gone", keys=KeysOfLeaver.REVOKE, actor=Actor(person.pk, str(person)))
    assert {share.conversation.owner for share in Share.objects.all()} == {stranger}
    assert {owner for kept in KEPT for owner in kept.objects.values_list("owner_id", flat=True)} == {stranger.pk}
    assert not Conversation.objects.filter(owner=person, deleted_at=None).exists()
    conversations.purge()
    assert [conversation.owner for conversation in Conversation.objects.all()] == [stranger]
