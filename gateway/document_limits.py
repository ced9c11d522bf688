"""What of a document is too much to read: above all how large it becomes when somebody unpacks it.

A few kilobytes can hold a picture of gigabytes. Pictures say their size in their first bytes; a PDF's streams are
inflated piece by piece and forgotten, up to a limit. This knows Flate, filters put twice over each other, and the
sizes that image dictionaries state: what is hidden behind rarer filters is for the limits of whoever opens the file.
"""

from __future__ import annotations

import re
import struct
import zlib

# Larger ones are refused by the usual picture libraries of model servers, too.
MAX_PIXELS = 150_000_000
# A picture's stream may hold four colours of 16 bits each; any other stream, text and lines and fonts, so much.
BYTES_PER_PIXEL = 8
MAX_PLAIN_STREAM_BYTES = 128 * 1024 * 1024
SLACK_BYTES = 1024 * 1024
MAX_UNPACKED_BYTES = 2 * 1024 * 1024 * 1024
MAX_PAGES = 1_000
# The codes of refusals.
TOO_LARGE, UNREADABLE, ENCRYPTED = "document_too_large", "document_unreadable", "document_encrypted"


class Unfit(Exception):
    """A document that is not read, and why; `param` where the request asks of it what it has not."""

    def __init__(self, message: str, *, code: str | None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


_STREAM = re.compile(rb"(?<!end)stream[ \t]*\r?\n?")
_DICTIONARY_BYTES = 2_048
# A number that stands there, not one that stands in another object ("12 0 R").
_WIDTH = re.compile(rb"/Width\s+(\d{1,10})\b(?!\s+\d+\s+R\b)")
_HEIGHT = re.compile(rb"/Height\s+(\d{1,10})\b(?!\s+\d+\s+R\b)")
# What one step may come to: 16 KiB of Flate are at most 17 MiB.
_STEP_BYTES = 16_384
_MAX_LAYERS = 3


def check_picture(data: bytes) -> None:
    """Raises Unfit for a picture too large to unpack, or one whose header is cut short."""
    try:
        size = _picture_size(data)
    except (struct.error, IndexError):
        raise Unfit("The picture is damaged and cannot be read", code=UNREADABLE) from None
    if size is not None:
        _check_pixels(*size)


def check_streams(pdf: bytes) -> None:
    """Raises Unfit for a PDF whose streams unpack to too much."""
    left = MAX_UNPACKED_BYTES
    for found in _STREAM.finditer(pdf):
        dictionary = pdf[max(0, found.start() - _DICTIONARY_BYTES) : found.start()].rpartition(b"obj")[2]
        left -= _Inflating(limit=min(left, _allowed_bytes(dictionary))).bytes_of(pdf, found.end())


def _allowed_bytes(dictionary: bytes) -> int:
    """What a stream may come to; of a picture, by the size it states."""
    width, height = _WIDTH.search(dictionary), _HEIGHT.search(dictionary)
    if not width or not height:
        return MAX_PLAIN_STREAM_BYTES
    _check_pixels(int(width[1]), int(height[1]))
    return int(width[1]) * int(height[1]) * BYTES_PER_PIXEL + SLACK_BYTES


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        text = f"The document holds a picture of {width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are read"
        raise Unfit(text, code=TOO_LARGE)


class _Inflating:
    """One stream and what is packed inside it, counted over all of its layers."""

    def __init__(self, *, limit: int) -> None:
        self._layers = [_Layer()]
        self._left = limit

    def bytes_of(self, data: bytes, start: int) -> int:
        """The bytes that come out. What is no Flate comes to nothing, what breaks off to what came before."""
        if not _is_flate(data[start : start + 2]):
            return 0
        before = self._left
        for at in range(start, len(data), _STEP_BYTES):
            self._feed(data[at : at + _STEP_BYTES], depth=0)
            if self._layers[0].ended:
                break
        return before - self._left

    def _feed(self, packed: bytes, *, depth: int) -> None:
        layer = self._layers[depth]
        out = layer.inflate(packed)
        self._left -= len(out)
        if self._left < 0:
            raise Unfit("The document unpacks to more than can be read", code=TOO_LARGE)
        if out and not layer.seen and depth + 1 < _MAX_LAYERS and _is_flate(out[:2]):
            self._layers.append(_Layer())
        layer.seen = layer.seen or bool(out)
        if len(self._layers) > depth + 1:
            for at in range(0, len(out), _STEP_BYTES):
                self._feed(out[at : at + _STEP_BYTES], depth=depth + 1)


class _Layer:
    __slots__ = ("_inflate", "ended", "seen")

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj()
        self.ended = self.seen = False

    def inflate(self, packed: bytes) -> bytes:
        if self.ended:
            return b""
        try:
            out = self._inflate.decompress(packed)
        except zlib.error:
            self.ended = True
            return b""
        self.ended = self._inflate.eof
        return out


def _is_flate(head: bytes) -> bool:
    """Whether these two bytes may begin a zlib stream."""
    return len(head) == 2 and head[0] & 0x0F == 8 and (head[0] << 8 | head[1]) % 31 == 0


# -- pictures ------------------------------------------------------------------------------------


def _picture_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels; None for what is no picture of a kind known here."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return struct.unpack_from(">II", data, 16)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return struct.unpack_from("<HH", data, 6)
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg_size(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp_size(data)
    return None


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """From the frame header: a marker of C0–CF that is not one of the tables among them."""
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        at += 2 + int(struct.unpack_from(">H", data, at + 2)[0]) if marker != 0xFF else 1
    raise IndexError


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L":
        bits = int(struct.unpack_from("<I", data, 21)[0])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = struct.unpack_from("<HH", data, 26)
    return width & 0x3FFF, height & 0x3FFF
