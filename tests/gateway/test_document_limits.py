"""Documents that burst when they are unpacked, told without unpacking them."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest

from gateway import document_limits
from gateway.document_limits import Unfit, check_picture, check_streams
from tests.documents import pdf, png, with_stream

# The smallest files of their kinds, 1 × 1 pixel.
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
LOSSLESS_WEBP = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
JPEG_START = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"


def jpeg(width: int, height: int) -> bytes:
    return JPEG_START + b"\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", height, width) + bytes(20)


def webp(kind: bytes, rest: bytes) -> bytes:
    return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + rest


def extended_webp(width: int, height: int) -> bytes:
    return webp(b"VP8X", bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


def png_header(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", width, height)


def lossy_webp(width: int, height: int) -> bytes:
    return webp(b"VP8 ", bytes(6) + struct.pack("<HH", width, height))


PLAIN = [png(3, 2), GIF, LOSSLESS_WEBP, jpeg(30, 20), extended_webp(30, 20), lossy_webp(30, 20), b"", b"BM", b"<svg/>"]
LARGE = [
    png_header(20_000, 10_000),
    jpeg(20_000, 10_000),
    extended_webp(20_000, 10_000),
    lossy_webp(16_000, 16_000),
    b"GIF89a" + struct.pack("<HH", 20_000, 10_000),
    webp(b"VP8L", b"\x2f" + struct.pack("<I", 15_999 | 15_999 << 14)),
]


@pytest.mark.parametrize("picture", PLAIN)
def test_pictures_of_a_usual_size_and_unknown_files_pass(picture: bytes) -> None:
    check_picture(picture)


@pytest.mark.parametrize("picture", LARGE)
def test_a_picture_of_too_many_pixels_is_refused(picture: bytes) -> None:
    with pytest.raises(Unfit, match="pixels") as caught:
        check_picture(picture)
    assert caught.value.code == "document_too_large"


@pytest.mark.parametrize("picture", [png(1, 1)[:20], b"GIF89a", JPEG_START, b"\xff\xd8\xff", webp(b"VP8 ", b"")])
def test_a_picture_whose_header_is_cut_is_damaged(picture: bytes) -> None:
    with pytest.raises(Unfit, match="damaged") as caught:
        check_picture(picture)
    assert caught.value.code == "document_unreadable"


def flate(size: int, *, times: int = 1) -> bytes:
    data = bytes(size)
    for _ in range(times):
        data = zlib.compress(data, 9)
    return data


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_limits, "MAX_PLAIN_STREAM_BYTES", 3_000_000)
    monkeypatch.setattr(document_limits, "MAX_UNPACKED_BYTES", 5_000_000)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    "streams",
    [
        [],
        [flate(2_900_000)],
        [flate(2_000_000)] * 2,
        [b"stream\n" * 1_000],
        [flate(2_000_000)[:900]],
        [b"\x78\x9c no Flate"],
        [zlib.compress(b"\x78\x9c no Flate")],
    ],
)
def test_a_pdf_within_the_limits_passes(streams: list[bytes]) -> None:
    document = pdf("One")
    for stream in streams:
        document = with_stream(document, stream)
    check_streams(document)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    "streams",
    [
        [flate(3_100_000)],
        [flate(2_000_000)] * 3,
        [flate(20_000_000, times=2)],
        [flate(20_000_000, times=3)],
        [flate(4_000_000) + b"more"],
    ],
    ids=["one", "many", "packed twice", "packed three times", "with a tail"],
)
def test_a_pdf_that_bursts_is_refused(streams: list[bytes]) -> None:
    document = pdf("One")
    for stream in streams:
        document = with_stream(document, stream)
    assert len(document) < 20_000
    with pytest.raises(Unfit, match="unpacks to more") as caught:
        check_streams(document)
    assert caught.value.code == "document_too_large"


def test_a_picture_in_a_pdf_may_not_be_larger_than_one_alone() -> None:
    check_streams(with_stream(pdf("One"), b"x", b"/Width 12000 /Height 12000"))
    with pytest.raises(Unfit, match=r"13,000 × 12,000 pixels"):
        check_streams(with_stream(pdf("One"), b"x", b"/Subtype /Image /Height 12000\n/Width 13000"))


def test_a_picture_in_a_pdf_unpacks_to_what_it_says_it_is_and_no_more() -> None:
    size = b"/Width 1000 /Height 1000"
    check_streams(with_stream(pdf("One"), flate(8_000_000), size))
    with pytest.raises(Unfit, match="unpacks to more"):
        check_streams(with_stream(pdf("One"), flate(9_500_000), size))
    # Where the size stands elsewhere in the file, the picture is as any stream.
    check_streams(with_stream(pdf("One"), flate(9_500_000), b"/Width 10 0 R /Height 11 0 R"))
