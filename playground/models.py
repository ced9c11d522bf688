"""A person's own conversations with the models."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def of(self, user: Any, team: Any) -> Self:
        """One's own conversations in the team one works in: nobody else's, owners and staff included."""
        return self.filter(owner_id=user.pk, team_id=team.pk)


class Conversation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="conversations")
    title = models.CharField(_("title"), max_length=200, blank=True)
    model = models.CharField(_("model"), max_length=200)
    # temperature, top_p, max_tokens, reasoning_effort, system: what the next turn is sent with.
    settings = models.JSONField(default=dict)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = ConversationQuerySet.as_manager()

    class Meta:
        ordering = ["-updated_at", "-id"]
        indexes = [models.Index(fields=["owner", "-updated_at"], name="owner_conversations")]

    def __str__(self) -> str:
        return self.title or str(self.id)


# A living process renews its turns about once a second; SQLite may keep a writer waiting.
CUT_OFF_AFTER_SECONDS = 20


class TurnQuerySet(models.QuerySet["Turn"]):
    def cut_off(self) -> Self:
        """Streaming turns that no process fills any more."""
        limit = timezone.now() - timedelta(seconds=CUT_OFF_AFTER_SECONDS)
        return self.filter(state=Turn.State.STREAMING, touched_at__lt=limit)

    def close_cut_off(self) -> int:
        """A process that was killed left its turns streaming: say so on them."""
        error = {"status": 500, "message": "", "code": "interrupted"}
        return self.cut_off().update(state=Turn.State.FAILED, error=error)


class Turn(models.Model):
    """One message of a conversation; an assistant's turn is filled while its answer streams."""

    class Role(models.TextChoices):
        USER = "user"
        ASSISTANT = "assistant"

    class State(models.TextChoices):
        STREAMING = "streaming"
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    role = models.CharField(max_length=9, choices=Role)
    state = models.CharField(max_length=9, choices=State, default=State.DONE)
    content = models.TextField(blank=True)
    reasoning = models.TextField(blank=True)
    model = models.CharField(max_length=200, blank=True)
    # The usage record's id: tokens, times and points under the answer are read from the ledger.
    request_id = models.UUIDField(null=True, blank=True)
    thinking_seconds = models.FloatField(null=True, blank=True)
    finish_reason = models.CharField(max_length=32, blank=True)
    # {"status": 429, "message": "…", "code": "…"} where the request failed.
    error = models.JSONField(null=True, blank=True)
    # Set from whatever process the Stop arrived at; the one that generates looks at it.
    stop_requested = models.BooleanField(default=False)
    # Renewed while its process lives: a streaming turn left alone for long was cut off.
    touched_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TurnQuerySet.as_manager()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.role} {self.pk}"

    @property
    def is_streaming(self) -> bool:
        return self.state == self.State.STREAMING

    @property
    def is_cut_off(self) -> bool:
        return self.is_streaming and timezone.now() - self.touched_at > timedelta(seconds=CUT_OFF_AFTER_SECONDS)
