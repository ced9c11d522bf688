"""Pictures and videos that go with a state: new ones, and those of an earlier decision that are sent again."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.translation import gettext, ngettext

from gateway.catalog import Model
from gateway.ocr_api import media_type_of
from playground.deciding import Picture
from playground.history import Decision, DecisionPicture
from playground.request import PersonRequest

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
VIDEOS = ("video/mp4", "video/webm", "video/quicktime")
MAX_PICTURES = 16
# Base64 makes four bytes of three, and a request may have 50 MiB.
MAX_TOTAL_MIB = 32
# What follows `ftyp` in a file of the MP4 family that holds a video: sound and still pictures have other names.
MP4_BRANDS = (b"iso", b"mp4", b"M4V", b"avc1", b"dash")


class Unfit(Exception):
    """The pictures cannot be taken; the text says why, in the reader's language."""


def kinds_for(models: Sequence[Model]) -> tuple[str, ...]:
    """What can be chosen where any of these models may be asked."""
    return (PICTURES if any(model.sees_images for model in models) else ()) + (
        VIDEOS if any(_sees_videos(model) for model in models) else ()
    )


def pictures_in(request: PersonRequest, *, model: Model) -> list[Picture]:
    """Raises Unfit."""
    kept = [int(id) for id in request.POST.getlist("picture") if id.isdecimal()]
    mine = Decision.objects.of(request.user, request.team)
    pictures = [
        Picture(picture.media_type, bytes(picture.data))
        for picture in DecisionPicture.objects.filter(pk__in=kept, decision__in=mine)
    ]
    files = [file for file in request.FILES.getlist("images") if file.size]
    if sum(file.size or 0 for file in files) + sum(len(one.data) for one in pictures) > MAX_TOTAL_MIB * 1024 * 1024:
        raise Unfit(gettext("The pictures and videos have more than %d MiB together.") % MAX_TOTAL_MIB)
    for file in files:
        data = file.read()
        # By what the file is, never by what it is called: it will be served from this site.
        media_type = _video_type(data) or media_type_of(data, "")
        if media_type not in PICTURES + VIDEOS:
            raise Unfit(
                gettext("“%s” is neither a PNG, JPEG, GIF or WebP picture nor an MP4 or WebM video.") % file.name
            )
        pictures.append(Picture(media_type, data))
    _check_number(pictures, model)
    return pictures


def _check_number(pictures: Sequence[Picture], model: Model) -> None:
    videos = sum(picture.is_video for picture in pictures)
    if videos and not _sees_videos(model):
        raise Unfit(gettext("%(model)s takes no videos.") % {"model": model.id})
    most = (model.max_images or MAX_PICTURES) if model.sees_images else 0
    if len(pictures) - videos > most:
        text = ngettext("%(model)s takes at most %(most)d picture.", "%(model)s takes at most %(most)d pictures.", most)
        raise Unfit(text % {"model": model.id, "most": most})


def _sees_videos(model: Model) -> bool:
    return "video" in model.input_modalities


def _video_type(data: bytes) -> str:
    """Empty for what is no video of a kind known here."""
    if data.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm"
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        return "video/mp4" if brand.startswith(MP4_BRANDS) else "video/quicktime" if brand == b"qt  " else ""
    return ""
