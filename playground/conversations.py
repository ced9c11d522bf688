"""What one does with whole conversations and their branches, apart from asking."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from accounts.models import Team, User
from playground.branches import choose, tree_of
from playground.models import Conversation, Turn

# How long something deleted can be had back; after that it is removed for good.
UNDO_SECONDS = 15 * 60
PURGE_BATCH = 500


def own(user: User, team: Team, conversation_id: uuid.UUID) -> Conversation:
    """Raises `Conversation.DoesNotExist` for everybody else's."""
    return Conversation.objects.of(user, team).get(pk=conversation_id)


def rename(*, conversation: Conversation, title: str) -> None:
    conversation.title = " ".join(title.split())[:200] or conversation.title
    conversation.save(update_fields=["title"])


def set_pinned(*, conversation: Conversation, pinned: bool) -> None:
    conversation.pinned_at = timezone.now() if pinned else None
    conversation.save(update_fields=["pinned_at"])


def delete(*, conversation: Conversation) -> list[int]:
    """Hide it, and its link with it. Returns the turns that still stream, to be stopped."""
    conversation.deleted_at = timezone.now()
    conversation.save(update_fields=["deleted_at"])
    return list(conversation.turns.streaming().values_list("pk", flat=True))


def restore(*, user: User, team: Team, conversation_id: uuid.UUID) -> Conversation:
    """Raises `Conversation.DoesNotExist` once it is too late."""
    conversation = Conversation.objects.owned(user, team).get(pk=conversation_id)
    conversation.deleted_at = None
    conversation.save(update_fields=["deleted_at"])
    return conversation


# -- branches ------------------------------------------------------------------------------------


def show_branch(*, turn: Turn) -> None:
    """Make this alternative the one that is shown, with what followed it when it last was."""
    with transaction.atomic():
        conversation = _locked(turn)
        tree = tree_of(conversation)
        choose(conversation, tree, tree.path_to(turn.pk))


def go_on_with(*, turn: Turn) -> None:
    """Show this answer, and ask its model from now on."""
    show_branch(turn=turn)
    if turn.model:
        Conversation.objects.filter(pk=turn.conversation_id).update(model=turn.model)


@dataclass(frozen=True, slots=True)
class Removed:
    """What went with a deleted turn: how many turns in all, and those that still stream."""

    count: int
    streaming: list[int]


def delete_turn(*, turn: Turn) -> Removed:
    """Hide it with everything that follows it; the alternative next to it takes its place."""
    with transaction.atomic():
        conversation = _locked(turn)
        tree = tree_of(conversation)
        place, below = tree.place(turn.pk), tree.below(turn.pk)
        shown = [id for id in tree.path(through=turn.pk) if id in set(below)]
        turn.deleted_at = timezone.now()
        turn.save(update_fields=["deleted_at"])
        neighbour = place.before or place.after
        if neighbour is not None:
            choose(conversation, tree, tree.path_to(neighbour))
        streaming = conversation.turns.streaming().filter(pk__in=below)
        return Removed(len(shown), list(streaming.values_list("pk", flat=True)))


def restore_turn(*, turn: Turn) -> None:
    with transaction.atomic():
        conversation = _locked(turn)
        turn.deleted_at = None
        turn.save(update_fields=["deleted_at"])
        tree = tree_of(conversation)
        choose(conversation, tree, tree.path_to(turn.pk))


def _locked(turn: Turn) -> Conversation:
    return Conversation.objects.select_for_update().get(pk=turn.conversation_id)


# -- for good ------------------------------------------------------------------------------------


def purge() -> int:
    """Remove what was deleted long enough ago; how many conversations and turns."""
    before = timezone.now() - timedelta(seconds=UNDO_SECONDS)
    count = 0
    for conversation in Conversation.objects.filter(deleted_at__lt=before)[:PURGE_BATCH]:
        conversation.delete()
        count += 1
    for turn in Turn.objects.filter(deleted_at__lt=before).select_related("conversation")[:PURGE_BATCH]:
        # All at once: following the chain by itself, Django would ask once for each turn of it.
        every = turn.conversation.turns.values_list("id", "parent_id")
        turns = Turn.objects.filter(pk__in=_below(turn.pk, list(every)))
        count += turns.count()
        turns.delete()
    return count


def _below(turn_id: int, rows: list[tuple[int, int | None]]) -> set[int]:
    """The turn and what follows it, deleted or not; a child's id is greater than its parent's."""
    found = {turn_id}
    for id, parent in sorted(rows):
        if parent in found:
            found.add(id)
    return found
