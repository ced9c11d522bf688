"""A person's own conversations with the models: trees of turns, one path of which is shown."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

# Django finds the models of an app here.
from playground.history import (  # noqa: F401
    Decision,
    DecisionPicture,
    Document,
    DocumentFile,
    Sheet,
    SoundPiece,
    Speech,
)


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def of(self, user: Any, team: Any) -> Self:
        """One's own conversations in the team one works in: nobody else's, owners and staff included."""
        return self.owned(user, team).filter(deleted_at=None)

    def owned(self, user: Any, team: Any) -> Self:
        """Those just deleted as well, which can be had back for a while."""
        return self.filter(owner_id=user.pk, team_id=team.pk)

    def matching(self, words: str) -> Self:
        """Titles and messages that hold every one of the words."""
        found = self
        for word in words.split():
            said = Turn.objects.filter(conversation=OuterRef("pk"), deleted_at=None, content__icontains=word)
            found = found.filter(Q(title__icontains=word) | Exists(said))
        return found


class Conversation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="conversations")
    title = models.CharField(_("title"), max_length=200, blank=True)
    model = models.CharField(_("model"), max_length=200)
    # What the next turn is sent with; the names are those of `chat_settings.SettingsForm`.
    settings = models.JSONField(default=dict)
    # One prompt to several models: its answers stand side by side.
    is_comparison = models.BooleanField(default=False)
    pinned_at = models.DateTimeField(null=True, blank=True)
    # Hidden at once, removed for good a while later.
    deleted_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = ConversationQuerySet.as_manager()

    class Meta:
        ordering = ["-updated_at", "-id"]
        indexes = [
            models.Index(fields=["owner", "-updated_at"], name="owner_conversations"),
            models.Index(fields=["deleted_at"], name="deleted_conversations", condition=Q(deleted_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return self.title or str(self.id)


# A living process renews its turns about once a second. One that was kept waiting for longer, by SQLite's one
# writer for example, takes its turn back.
CUT_OFF_AFTER_SECONDS = 6


class TurnQuerySet(models.QuerySet["Turn"]):
    def streaming(self) -> Self:
        return self.filter(state=Turn.State.STREAMING)

    def cut_off(self) -> Self:
        """Streaming turns that no process fills any more."""
        return self.untouched_since(timezone.now() - timedelta(seconds=CUT_OFF_AFTER_SECONDS))

    def untouched_since(self, moment: Any) -> Self:
        return self.streaming().filter(touched_at__lt=moment)

    def close_cut_off(self) -> int:
        """A process that was killed left its turns streaming: say so on them."""
        return self.cut_off().close()

    def close(self) -> int:
        error = {"status": 500, "message": "", "code": "interrupted", "presumed": True}
        return self.update(state=Turn.State.FAILED, error=error)

    def filled(self) -> Self:
        """Streaming turns, and those that somebody took for cut off."""
        return self.filter(Q(state=Turn.State.STREAMING) | Q(state=Turn.State.FAILED, error__presumed=True))


class Turn(models.Model):
    """One message of a conversation; an assistant's turn is filled while its answer streams.

    Turns are a tree. Those with one parent are alternatives: several answers to a question, several
    wordings of one. The path that is shown goes from each turn to its chosen child.
    """

    class Role(models.TextChoices):
        USER = "user"
        ASSISTANT = "assistant"
        # What the person answered to an assistant's tool calls.
        TOOL = "tool"

    class State(models.TextChoices):
        STREAMING = "streaming"
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    parent = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="children")
    # Among its alternatives; exactly one is, and where a cut-short write left it otherwise, the last one counts.
    chosen = models.BooleanField(default=True)
    role = models.CharField(max_length=9, choices=Role)
    state = models.CharField(max_length=9, choices=State, default=State.DONE)
    content = models.TextField(blank=True)
    reasoning = models.TextField(blank=True)
    model = models.CharField(max_length=200, blank=True)
    # [{"id", "name", "arguments"}] that the assistant asked for, [{"id", "name", "content"}] that it was told.
    tool_calls = models.JSONField(default=list, blank=True)
    tool_results = models.JSONField(default=list, blank=True)
    # Asked for as JSON: shown as such, never as Markdown.
    is_json = models.BooleanField(default=False)
    # What was changed of the request to suit the model, in portable mode's short words.
    adapted = models.JSONField(default=list, blank=True)
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
    # Hidden at once with all that follows it, removed for good a while later.
    deleted_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    objects = TurnQuerySet.as_manager()

    class Meta:
        ordering = ["id"]
        indexes = [
            models.Index(fields=["deleted_at"], name="deleted_turns", condition=Q(deleted_at__isnull=False)),
            models.Index(fields=["touched_at"], name="streaming_turns", condition=Q(state="streaming")),
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.pk}"

    @property
    def is_streaming(self) -> bool:
        return self.state == self.State.STREAMING

    @property
    def is_cut_off(self) -> bool:
        return self.is_streaming and timezone.now() - self.touched_at > timedelta(seconds=CUT_OFF_AFTER_SECONDS)


class RenderedTurn(models.Model):
    """A finished answer as HTML, compressed. `maker` names the renderer that made it; another one makes it anew."""

    turn = models.OneToOneField(Turn, on_delete=models.CASCADE, primary_key=True, related_name="rendered")
    maker = models.CharField(max_length=16)
    content = models.BinaryField()
    reasoning = models.BinaryField()

    def __str__(self) -> str:
        return f"{self.turn_id} by {self.maker}"


class Image(models.Model):
    """A picture of a question. In the database, where every process finds it and a backup has it too."""

    turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="images")
    media_type = models.CharField(max_length=32)
    data = models.BinaryField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.media_type} {self.pk}"


class Share(models.Model):
    """A conversation that its owner shows to the team, up to the turn that was last when he did so."""

    conversation = models.OneToOneField(Conversation, on_delete=models.CASCADE, related_name="share")
    token = models.CharField(max_length=43, unique=True)
    last_turn = models.ForeignKey(Turn, on_delete=models.CASCADE, related_name="+")
    shared_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"{self.conversation} {self.shared_at:%Y-%m-%d}"
