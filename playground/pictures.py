"""Pictures that come with a message. The browser has made them small; here they are checked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext as _

MAX_PICTURES = 8
MAX_PICTURE_BYTES = 4 * 1024 * 1024
# Base64 makes four bytes of three, and a request may have 20 MiB.
MAX_PICTURES_BYTES = 12 * 1024 * 1024

SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
)


class Unfit(Exception):
    """The pictures cannot be taken; the text says why, in the reader's language."""


@dataclass(frozen=True, slots=True)
class Picture:
    media_type: str
    data: bytes


def read_pictures(files: Iterable[UploadedFile[bytes]]) -> list[Picture]:
    """Raises Unfit."""
    pictures: list[Picture] = []
    for file in files:
        if len(pictures) == MAX_PICTURES:
            raise Unfit(_("At most %d pictures can go with one message.") % MAX_PICTURES)
        if (file.size or 0) > MAX_PICTURE_BYTES:
            raise Unfit(_("“%(name)s” is larger than %(size)d MB.") % {"name": file.name, "size": 4})
        data = file.read()
        pictures.append(Picture(_media_type(data, str(file.name)), data))
    if sum(len(picture.data) for picture in pictures) > MAX_PICTURES_BYTES:
        raise Unfit(_("These pictures are too large for one request. Send fewer of them."))
    return pictures


def _media_type(data: bytes, name: str) -> str:
    """From what the file is, never from what it is called: it will be served from this site."""
    for mark, start, media_type in SIGNATURES:
        if data[start : start + len(mark)] == mark:
            return media_type
    raise Unfit(_("“%s” is no PNG, JPEG, WebP or GIF picture.") % name)
