"""What a person had read, spoken and decided: kept for that person alone, until they delete it."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any, ClassVar, Self

from django.conf import settings
from django.db import models
from django.utils import timezone

# A living process renews what it works at every few seconds; SQLite may keep a writer waiting.
CUT_OFF_AFTER_SECONDS = 20


class KeptQuerySet(models.QuerySet[Any]):
    def of(self, user: Any, team: Any) -> Self:
        """One's own in the team one works in: nobody else's, owners and staff included."""
        return self.filter(owner_id=user.pk, team_id=team.pk)


class Kept(models.Model):
    """One use of a model, with what came of it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="+")
    model = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now)

    objects: ClassVar[Any] = KeptQuerySet.as_manager()

    class Meta:
        abstract = True
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["owner", "team", "-created_at"], name="own_%(class)s")]


class WorkQuerySet(KeptQuerySet):
    def working(self) -> Self:
        return self.filter(state=Work.State.WORKING)

    def close_cut_off(self) -> int:
        """A process that was killed left its work open: say so on it."""
        limit = timezone.now() - timedelta(seconds=CUT_OFF_AFTER_SECONDS)
        error = {"status": 500, "message": "", "code": "interrupted"}
        return self.working().filter(touched_at__lt=limit).update(state=Work.State.FAILED, error=error)


class Work(Kept):
    """What takes its time: a task of some web process goes on with it, and every process can look."""

    class State(models.TextChoices):
        WORKING = "working"
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"

    state = models.CharField(max_length=7, choices=State, default=State.WORKING)
    # {"status": 429, "message": "…", "code": "…", "request_id": "…"} of the call that failed.
    error = models.JSONField(null=True, blank=True)
    stop_requested = models.BooleanField(default=False)
    touched_at = models.DateTimeField(default=timezone.now)

    objects: ClassVar[Any] = WorkQuerySet.as_manager()

    class Meta(Kept.Meta):
        abstract = True

    @property
    def is_working(self) -> bool:
        return self.state == self.State.WORKING


class Document(Work):
    """A PDF or a picture, read page by page: each page is a call of its own."""

    name = models.CharField(max_length=200)
    media_type = models.CharField(max_length=100)
    size_bytes = models.PositiveIntegerField()
    pages = models.PositiveIntegerField()

    def __str__(self) -> str:
        return self.name

    @property
    def is_picture(self) -> bool:
        return self.media_type.startswith("image/")


class DocumentFile(models.Model):
    """The file itself, apart: lists of documents never load it."""

    document = models.OneToOneField(Document, on_delete=models.CASCADE, primary_key=True, related_name="file")
    data = models.BinaryField()

    def __str__(self) -> str:
        return str(self.document_id)


class Sheet(models.Model):
    """A page that was read. `index` counts from 0; the usage record of its call is named by `request_id`."""

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="sheets")
    index = models.PositiveIntegerField()
    markdown = models.TextField(blank=True)
    request_id = models.UUIDField()

    class Meta:
        ordering = ["index"]
        constraints = [models.UniqueConstraint(fields=["document", "index"], name="one_sheet_a_page")]

    def __str__(self) -> str:
        return f"{self.document_id} {self.index}"


class Speech(Work):
    """A text and the sound that was made of it."""

    text = models.TextField()
    # voice, response_format, speed, instructions: as they were sent.
    settings = models.JSONField(default=dict)
    content_type = models.CharField(max_length=100)
    request_id = models.UUIDField()

    def __str__(self) -> str:
        return self.text[:60]

    @property
    def format(self) -> str:
        return str(self.settings.get("response_format", "wav"))


class SoundPiece(models.Model):
    """Some of the sound: `data` are its bytes from `first_byte` on, up to and without `end_byte`."""

    speech = models.ForeignKey(Speech, on_delete=models.CASCADE, related_name="pieces")
    first_byte = models.PositiveIntegerField()
    end_byte = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["first_byte"]
        constraints = [models.UniqueConstraint(fields=["speech", "first_byte"], name="sound_without_overlap")]

    def __str__(self) -> str:
        return f"{self.speech_id} {self.first_byte}"


class Decision(Kept):
    """Questions about a state and a model's answers."""

    state = models.TextField()
    questions = models.JSONField()
    answers = models.JSONField()
    request_id = models.UUIDField()

    def __str__(self) -> str:
        return self.state[:60]


class DecisionPicture(models.Model):
    """A picture or a video that went with the state."""

    decision = models.ForeignKey(Decision, on_delete=models.CASCADE, related_name="pictures")
    media_type = models.CharField(max_length=100)
    data = models.BinaryField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.decision_id} {self.media_type}"

    @property
    def is_video(self) -> bool:
        return self.media_type.startswith("video/")
