"""Pictures that go with a state: new ones, and those of an earlier decision that are sent again."""

from __future__ import annotations

from django.utils.translation import gettext, ngettext

from gateway.catalog import Model
from gateway.ocr_api import media_type_of
from playground.deciding import Picture
from playground.history import Decision, DecisionPicture
from playground.request import PersonRequest

KINDS = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_PICTURES = 16
# Base64 makes four bytes of three, and a request may have 50 MiB.
MAX_TOTAL_MIB = 32


class Unfit(Exception):
    """The pictures cannot be taken; the text says why, in the reader's language."""


def most_pictures(model: Model) -> int:
    return (model.max_images or MAX_PICTURES) if model.sees_images else 0


def pictures_in(request: PersonRequest, *, model: Model) -> list[Picture]:
    """Raises Unfit."""
    kept = [int(id) for id in request.POST.getlist("picture") if id.isdecimal()]
    mine = Decision.objects.of(request.user, request.team)
    pictures = [
        Picture(picture.media_type, bytes(picture.data))
        for picture in DecisionPicture.objects.filter(pk__in=kept, decision__in=mine)
    ]
    files = [file for file in request.FILES.getlist("images") if file.size]
    most = most_pictures(model)
    if len(pictures) + len(files) > most:
        text = ngettext("%(model)s takes at most %(most)d picture.", "%(model)s takes at most %(most)d pictures.", most)
        raise Unfit(text % {"model": model.id, "most": most})
    if sum(file.size or 0 for file in files) + sum(len(one.data) for one in pictures) > MAX_TOTAL_MIB * 1024 * 1024:
        raise Unfit(gettext("The pictures have more than %d MiB together.") % MAX_TOTAL_MIB)
    for file in files:
        data = file.read()
        # By what the file is, never by what it is called: it will be served from this site.
        media_type = media_type_of(data, "")
        if media_type not in KINDS:
            raise Unfit(gettext("“%s” is no PNG, JPEG, GIF or WebP picture.") % file.name)
        pictures.append(Picture(media_type, data))
    return pictures
