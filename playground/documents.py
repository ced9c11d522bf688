"""What one does with documents: have one read, go on with it, stop."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from accounts.models import Team, User
from playground.history import Document, DocumentFile

# Each holds its file in the memory of a web process while it is read.
MAX_AT_ONCE = 3
NAME_LENGTH = 200


class Busy(Exception):
    """As many documents of this person are being read as may be at a time."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that can be read, and how many pages it has."""

    name: str
    media_type: str
    data: bytes
    pages: int


def add(*, owner: User, team: Team, model: str, upload: Upload) -> Document:
    """Raises `Busy`."""
    with transaction.atomic():
        _claim(owner)
        document = Document.objects.create(
            owner=owner,
            team=team,
            model=model,
            name=upload.name[-NAME_LENGTH:],
            media_type=upload.media_type,
            size_bytes=len(upload.data),
            pages=upload.pages,
        )
        DocumentFile.objects.create(document=document, data=upload.data)
    return document


def go_on(document: Document) -> bool:
    """Open it for reading again; False where somebody reads it already."""
    with transaction.atomic():
        _claim(document.owner)
        return bool(
            Document.objects.filter(pk=document.pk)
            .exclude(state__in=[Document.State.WORKING, Document.State.DONE])
            .update(state=Document.State.WORKING, error=None, stop_requested=False, touched_at=timezone.now())
        )


def stop(document: Document) -> None:
    Document.objects.working().filter(pk=document.pk).update(stop_requested=True)


def _claim(owner: User) -> None:
    # The row lock makes two uploads take turns.
    User.objects.select_for_update().get(pk=owner.pk)
    Document.objects.filter(owner=owner).close_cut_off()
    if Document.objects.working().filter(owner=owner).count() >= MAX_AT_ONCE:
        raise Busy
