"""Pictures are what their bytes say, and not too many of them."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from playground.pictures import MAX_PICTURE_BYTES, MAX_PICTURES, Unfit, read_pictures

PNG, JPEG, GIF, WEBP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\x00\x00\x00\x00WEBP"


def upload(data: bytes, name: str = "a.png", content_type: str = "image/png") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, data, content_type)


@pytest.mark.parametrize(
    ("data", "media_type"), [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")]
)
def test_the_type_is_read_from_the_bytes(data: bytes, media_type: str) -> None:
    (picture,) = read_pictures([upload(data + b"rest", "evil.html", "text/html")])
    assert (picture.media_type, picture.data) == (media_type, data + b"rest")


@pytest.mark.parametrize(
    "data",
    [b"", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", b"<html><script>alert(1)</script>", b"%PDF-"],
)
def test_what_is_no_picture_is_refused(data: bytes) -> None:
    with pytest.raises(Unfit, match=r"“a\.png” is no PNG, JPEG, WebP or GIF picture\."):
        read_pictures([upload(data)])


def test_number_and_sizes_are_bounded() -> None:
    with pytest.raises(Unfit, match="At most 8 pictures"):
        read_pictures([upload(PNG) for _ in range(MAX_PICTURES + 1)])
    with pytest.raises(Unfit, match="larger than 4 MB"):
        read_pictures([upload(PNG + bytes(MAX_PICTURE_BYTES))])
    with pytest.raises(Unfit, match="too large for one request"):
        read_pictures([upload(PNG + bytes(MAX_PICTURE_BYTES - 8)) for _ in range(4)])
