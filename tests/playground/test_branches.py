"""The tree of turns: which path is shown, what the alternatives are."""

from __future__ import annotations

import random
from importlib import import_module

import pytest
from django.apps import apps

from accounts.models import Team, User
from playground.branches import Place, Tree, choose, tree_of
from playground.models import Conversation, Turn
from tests.playground.conftest import begin

#   1 ─ 2 ─ 3 ─ 4*
#       │   └── 6 ─ 7*
#       └── 5
ROWS = [(1, None, True), (2, 1, True), (3, 2, True), (4, 3, True), (5, 2, False), (6, 3, False), (7, 6, True)]


def test_the_shown_path_goes_along_the_chosen_turns() -> None:
    assert Tree(ROWS).path() == [1, 2, 3, 4]


def test_the_order_of_rows_does_not_matter() -> None:
    shuffled = random.Random(7).sample(ROWS, len(ROWS))
    assert Tree(shuffled).path() == Tree(ROWS).path()


def test_a_branch_is_shown_with_what_followed_it() -> None:
    assert Tree(ROWS).path(through=6) == [1, 2, 3, 6, 7]
    assert Tree(ROWS).path_to(6) == [1, 2, 3, 6]


def test_without_a_chosen_one_the_last_counts() -> None:
    assert Tree([(1, None, False), (2, None, False)]).path() == [2]


def test_a_place_names_its_neighbours() -> None:
    tree = Tree(ROWS)
    assert tree.place(1) == Place(1, 1, None, None)
    assert tree.place(4) == Place(1, 2, None, 6)
    assert tree.place(6) == Place(2, 2, 4, None)


def test_below_is_everything_that_follows() -> None:
    assert sorted(Tree(ROWS).below(3)) == [3, 4, 6, 7]


def test_what_follows_a_deleted_turn_is_not_there() -> None:
    tree = Tree([row for row in ROWS if row[0] != 3])
    assert tree.path() == [1, 2, 5]
    assert tree.path_to(7) == []


def test_an_empty_conversation_has_an_empty_path() -> None:
    assert Tree([]).path() == []


@pytest.mark.django_db
def test_choosing_a_path_leaves_one_chosen_turn_among_alternatives(person: User, team: Team) -> None:
    exchange = begin(person, team)
    conversation = exchange.conversation
    other = conversation.turns.create(role=Turn.Role.ASSISTANT, parent=exchange.question)
    tree = tree_of(conversation)
    choose(conversation, tree, tree.path_to(exchange.answer.pk))
    assert list(conversation.turns.values_list("pk", "chosen").order_by("pk")) == [
        (exchange.question.pk, True),
        (exchange.answer.pk, True),
        (other.pk, False),
    ]
    assert tree_of(conversation).path() == [exchange.question.pk, exchange.answer.pk]


@pytest.mark.django_db
def test_conversations_from_before_become_trees_of_one_branch(person: User, team: Team) -> None:
    first, second = (Conversation.objects.create(owner=person, team=team, model="m") for _ in range(2))
    made: dict[Conversation, list[int]] = {first: [], second: []}
    # Their turns lie in between one another, as they were written.
    for number in range(6):
        for conversation, ids in made.items():
            ids.append(conversation.turns.create(role=Turn.Role.USER, content=str(number)).pk)
    import_module("playground.migrations.0003_chain_turns").chain(apps, None)
    for conversation, ids in made.items():
        assert tree_of(conversation).path() == ids
        assert conversation.turns.get(pk=ids[0]).parent_id is None
