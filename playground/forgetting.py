"""What the playground keeps of a person goes with the account."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from accounts.models import User
from playground.conversations import UNDO_SECONDS
from playground.history import Decision, Document, Speech
from playground.models import Conversation, Share


def forget(*, user: User, **kwargs: Any) -> None:
    """Conversations, which may be long, are left to `conversations.purge`: nobody sees them from now on."""
    Share.objects.filter(conversation__owner=user).delete()
    past_undoing = timezone.now() - timedelta(seconds=UNDO_SECONDS + 1)
    Conversation.objects.filter(owner=user).update(deleted_at=past_undoing)
    for kept in (Document, Speech, Decision):
        kept.objects.filter(owner=user).delete()
