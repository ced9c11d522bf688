"""Showing a conversation to the team: an explicit act of its owner, as far as it goes then, until taken back."""

from __future__ import annotations

import secrets

from django.db import transaction
from django.utils import timezone

from accounts.models import Membership, Team, User
from playground.branches import Tree, tree_of, turns_of
from playground.models import Conversation, Image, Share, Turn


def share(*, conversation: Conversation) -> Share | None:
    """Show what is shown now; what is written later is not, until this is done again. None where there is nothing."""
    with transaction.atomic():
        path = tree_of(conversation).path()
        if not path:
            return None
        made, _new = Share.objects.update_or_create(
            conversation=conversation,
            defaults={"last_turn_id": path[-1], "shared_at": timezone.now()},
            create_defaults={
                "last_turn_id": path[-1],
                "shared_at": timezone.now(),
                "token": secrets.token_urlsafe(32),
            },
        )
        return made


def unshare(*, conversation: Conversation) -> None:
    """The link shows nothing from now on; a new one is another one."""
    Share.objects.filter(conversation=conversation).delete()


def shared_with(user: User, token: str) -> Share:
    """For the members of its team, while its owner is one. Raises `Share.DoesNotExist`."""
    teams = Membership.objects.filter(user=user).values("team_id")
    found = (
        Share.objects.select_related("conversation__owner", "conversation__team")
        .filter(conversation__deleted_at=None, conversation__team_id__in=teams)
        .get(token=token)
    )
    conversation = found.conversation
    if not Membership.objects.filter(team_id=conversation.team_id, user_id=conversation.owner_id).exists():
        raise Share.DoesNotExist
    return found


def shared_turns(share: Share) -> tuple[Tree, list[Turn]]:
    """What the owner has deleted since, and what follows it, is not shown any more."""
    tree = tree_of(share.conversation)
    path: list[int] = []
    for turn in _ancestry(share):
        if turn not in tree:
            break
        path.append(turn)
    return tree, turns_of(share.conversation, path)


def _ancestry(share: Share) -> list[int]:
    every = Tree(share.conversation.turns.values_list("id", "parent_id", "chosen"))
    return every.path_to(share.last_turn_id)


def copy(*, share: Share, owner: User, team: Team) -> Conversation:
    """The shared turns as a conversation of one's own, to go on with."""
    source = share.conversation
    _tree, turns = shared_turns(share)
    with transaction.atomic():
        made = Conversation.objects.create(
            owner=owner, team=team, title=source.title, model=source.model, settings=source.settings
        )
        parent: Turn | None = None
        for turn in turns:
            images = list(turn.images.all())
            parent = _copied(turn, conversation=made, parent=parent)
            Image.objects.bulk_create(
                Image(turn=parent, media_type=image.media_type, data=image.data) for image in images
            )
        return made


def _copied(turn: Turn, *, conversation: Conversation, parent: Turn | None) -> Turn:
    """Without its meter: nothing was asked of a model for it here."""
    state = Turn.State.STOPPED if turn.is_streaming else turn.state
    kept = ("role", "content", "reasoning", "model", "tool_calls", "tool_results", "is_json", "thinking_seconds")
    fields = {name: getattr(turn, name) for name in (*kept, "finish_reason", "error")}
    return conversation.turns.create(parent=parent, state=state, **fields)
