"""What one does with conversations: begin, ask, answer again, rename."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from accounts.models import Team, User
from playground.models import Conversation, Turn

TITLE_LENGTH = 60


class Busy(Exception):
    """An answer is still being written in this conversation."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and the empty answer that is to be filled, and what the model is to be told."""

    conversation: Conversation
    question: Turn
    answer: Turn
    messages: list[dict[str, str]]


def begin(*, owner: User, team: Team, text: str, model: str, settings: dict[str, Any]) -> Exchange:
    with transaction.atomic():
        conversation = Conversation.objects.create(
            owner=owner, team=team, title=title_of(text), model=model, settings=settings
        )
        return _exchange(conversation, text=text)


def ask(*, conversation: Conversation, text: str, model: str, settings: dict[str, Any]) -> Exchange:
    """Raises `Busy`."""
    with transaction.atomic():
        _claim(conversation, model=model, settings=settings)
        return _exchange(conversation, text=text)


def answer_again(*, conversation: Conversation, model: str, settings: dict[str, Any]) -> Exchange:
    """The last answer gives way to a new one. Raises `Busy`, `Turn.DoesNotExist` where nothing was asked."""
    with transaction.atomic():
        _claim(conversation, model=model, settings=settings)
        question = conversation.turns.filter(role=Turn.Role.USER).latest("id")
        conversation.turns.filter(id__gt=question.pk).delete()
        return _with_answer(conversation, question)


def rename(*, conversation: Conversation, title: str) -> None:
    conversation.title = " ".join(title.split())[:200] or conversation.title
    conversation.save(update_fields=["title"])


def title_of(text: str) -> str:
    """The first words of a message, cut at a word where there is one."""
    line = " ".join(text.split())
    if len(line) <= TITLE_LENGTH:
        return line
    head = line[:TITLE_LENGTH]
    # Chinese has no spaces to cut at.
    word_end = head.rfind(" ")
    return (head[:word_end] if word_end > TITLE_LENGTH // 2 else head).rstrip(",.;:，。；：") + "…"


def _claim(conversation: Conversation, *, model: str, settings: dict[str, Any]) -> None:
    """One answer at a time: the row lock makes two tabs take turns."""
    Conversation.objects.select_for_update().get(pk=conversation.pk)
    conversation.turns.close_cut_off()
    if conversation.turns.filter(state=Turn.State.STREAMING).exists():
        raise Busy
    conversation.model, conversation.settings, conversation.updated_at = model, settings, timezone.now()
    conversation.save(update_fields=["model", "settings", "updated_at"])


def _exchange(conversation: Conversation, *, text: str) -> Exchange:
    return _with_answer(conversation, conversation.turns.create(role=Turn.Role.USER, content=text))


def _with_answer(conversation: Conversation, question: Turn) -> Exchange:
    messages = messages_of(list(conversation.turns.all()))
    answer = conversation.turns.create(role=Turn.Role.ASSISTANT, state=Turn.State.STREAMING, model=conversation.model)
    return Exchange(conversation, question, answer, messages)


def messages_of(turns: list[Turn]) -> list[dict[str, str]]:
    """What the model is told of earlier turns: their text, never their thinking.

    A question whose answer failed is joined to the next one, since several models
    want user and assistant to alternate.
    """
    messages: list[dict[str, str]] = []
    for turn in turns:
        if not turn.content.strip():
            continue
        if messages and messages[-1]["role"] == turn.role:
            messages[-1]["content"] += "\n\n" + turn.content
        else:
            messages.append({"role": turn.role, "content": turn.content})
    return messages


def own(user: User, team: Team, conversation_id: uuid.UUID) -> Conversation:
    """Raises `Conversation.DoesNotExist` for everybody else's."""
    return Conversation.objects.of(user, team).get(pk=conversation_id)
