"""Asking a model: a question of one's own, another answer, another wording, a tool's result.

Each verb adds turns to the conversation's tree, makes their path the one that is shown, and returns the
empty answer that is to be filled together with what the model is to be told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import prefetch_related_objects
from django.utils import timezone
from django.utils.translation import gettext

from accounts.models import Team, User
from playground.branches import Tree, choose, tree_of, turns_of
from playground.chat_request import Chosen
from playground.messages import messages_of
from playground.models import Conversation, Image, Turn
from playground.pictures import MAX_PICTURES_BYTES, Picture

TITLE_LENGTH = 60
# Beside portable mode's own words for what it changed.
PICTURES_LEFT_OUT = "pictures-left-out"


class Busy(Exception):
    """An answer is still being written in this conversation."""


class Gone(Exception):
    """The turn that the question was to follow is there no more."""


class TooLarge(Exception):
    """The conversation's pictures together are more than one request takes."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a person says to a model."""

    text: str
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and the empty answer that is to be filled with what `chosen` makes of `told`."""

    conversation: Conversation
    question: Turn
    answer: Turn
    chosen: Chosen
    told: list[Turn]

    def body(self) -> dict[str, Any]:
        return self.chosen.body(messages_of(self.told, sees_images=self.chosen.model.sees_images))


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered to one call."""

    id: str
    name: str
    content: str


def begin(*, owner: User, team: Team, said: Said, chosen: Chosen) -> Exchange:
    """Raises `TooLarge`."""
    with transaction.atomic():
        conversation = _new(owner=owner, team=team, said=said, chosen=chosen)
        return _answered(conversation, _question(conversation, said, parent_id=None), chosen)


def compare(*, owner: User, team: Team, said: Said, chosen: Sequence[Chosen]) -> list[Exchange]:
    """One question to several models; the first one's answer is the one a conversation goes on with."""
    with transaction.atomic():
        conversation = _new(owner=owner, team=team, said=said, chosen=chosen[0], is_comparison=True)
        question = _question(conversation, said, parent_id=None)
        exchanges = [_answered(conversation, question, one) for one in chosen]
        tree = tree_of(conversation)
        choose(conversation, tree, tree.path_to(exchanges[0].answer.pk))
        return exchanges


def ask(*, conversation: Conversation, said: Said, chosen: Chosen, parent_id: int | None) -> Exchange:
    """A question after that turn. Raises `Busy`, `Gone`, `TooLarge`."""
    with _turn_of(conversation, chosen) as tree:
        if parent_id is not None and not tree.path_to(parent_id):
            raise Gone
        question = _question(conversation, said, parent_id=parent_id)
        return _answered(conversation, question, chosen)


def answer_again(*, turn: Turn, chosen: Chosen) -> Exchange:
    """Another answer beside this one, which stays; one that failed without a word gives way. Raises `Busy`, `Gone`."""
    with _turn_of(turn.conversation, chosen) as tree:
        path = tree.path_to(turn.pk)
        if len(path) < 2:
            raise Gone
        if turn.state == Turn.State.FAILED and not (turn.content or turn.reasoning or turn.tool_calls):
            Turn.objects.filter(pk__in=tree.below(turn.pk)).delete()
        return _answered(turn.conversation, Turn.objects.get(pk=path[-2]), chosen)


def edit(*, turn: Turn, text: str, chosen: Chosen) -> Exchange:
    """The question worded otherwise, with its pictures, beside the old one. Raises `Busy`, `Gone`."""
    with _turn_of(turn.conversation, chosen) as tree:
        if turn.pk not in tree:
            raise Gone
        pictures = [Picture(image.media_type, bytes(image.data)) for image in turn.images.all()]
        question = _question(turn.conversation, Said(text, pictures), parent_id=turn.parent_id)
        return _answered(turn.conversation, question, chosen)


def give_results(*, turn: Turn, results: Sequence[Result], chosen: Chosen) -> Exchange:
    """What the tools that an answer called have said. Raises `Busy`, `Gone`."""
    with _turn_of(turn.conversation, chosen) as tree:
        if turn.pk not in tree:
            raise Gone
        told = [{"id": result.id, "name": result.name, "content": result.content} for result in results]
        given = turn.conversation.turns.create(role=Turn.Role.TOOL, parent_id=turn.pk, tool_results=told)
        return _answered(turn.conversation, given, chosen)


def title_of(text: str) -> str:
    """The first words of a message, cut at a word where there is one."""
    line = " ".join(text.split())
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    # Chinese has no spaces to cut at.
    word_end = head.rfind(" ")
    return (head[:word_end] if word_end > TITLE_LENGTH // 2 else head).rstrip(",.;:，。；：") + "…"


# -- how ---------------------------------------------------------------------------------------------


@contextmanager
def _turn_of(conversation: Conversation, chosen: Chosen) -> Iterator[Tree]:
    """One answer at a time: the row lock makes two tabs take turns. Gives the tree as it then is."""
    with transaction.atomic():
        Conversation.objects.select_for_update().get(pk=conversation.pk)
        conversation.turns.close_cut_off()
        if conversation.turns.streaming().exists():
            raise Busy
        conversation.model, conversation.settings = chosen.model.id, chosen.settings
        conversation.updated_at = timezone.now()
        conversation.save(update_fields=["model", "settings", "updated_at"])
        yield tree_of(conversation)


def _new(*, owner: User, team: Team, said: Said, chosen: Chosen, is_comparison: bool = False) -> Conversation:
    return Conversation.objects.create(
        owner=owner,
        team=team,
        title=title_of(said.text) or gettext("Picture"),
        model=chosen.model.id,
        settings=chosen.settings,
        is_comparison=is_comparison,
    )


def _question(conversation: Conversation, said: Said, *, parent_id: int | None) -> Turn:
    turn = conversation.turns.create(role=Turn.Role.USER, content=said.text, parent_id=parent_id)
    Image.objects.bulk_create(
        Image(turn=turn, media_type=picture.media_type, data=picture.data) for picture in said.pictures
    )
    return turn


def _answered(conversation: Conversation, question: Turn, chosen: Chosen) -> Exchange:
    answer = conversation.turns.create(
        role=Turn.Role.ASSISTANT,
        state=Turn.State.STREAMING,
        model=chosen.model.id,
        is_json=chosen.is_json,
        parent_id=question.pk,
    )
    tree = tree_of(conversation)
    path = tree.path_to(answer.pk)
    choose(conversation, tree, path)
    told = turns_of(conversation, path[:-1])
    prefetch_related_objects(told, "images")
    if chosen.model.sees_images and _picture_bytes(told) > MAX_PICTURES_BYTES:
        raise TooLarge
    exchange = Exchange(conversation, question, answer, chosen, told)
    _note_what_is_changed(exchange)
    return exchange


def _picture_bytes(turns: Sequence[Turn]) -> int:
    return sum(len(image.data) for turn in turns for image in turn.images.all())


def _note_what_is_changed(exchange: Exchange) -> None:
    answer, chosen = exchange.answer, exchange.chosen
    answer.adapted = chosen.adapted(exchange.body()) if chosen.portable else []
    if not chosen.model.sees_images and any(turn.images.all() for turn in exchange.told):
        answer.adapted.append(PICTURES_LEFT_OUT)
    if answer.adapted:
        answer.save(update_fields=["adapted"])
