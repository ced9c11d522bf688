"""A document on the OCR endpoint: a PDF's pages as Markdown, a picture as a page that describes it.

Only what a PDF says in text is read; a scanned page has none. Type sizes tell headings from text,
as far as a demo needs it.
"""

import base64
import binascii
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from gateway.demo.refusal import BadRequest

MAX_PAGES = 1_000
DPI = 200
POINTS_PER_INCH = 72
HEADING = 1.15  # times the size of the running text
TITLE = 1.6
PASSWORD_NEEDED = 4  # FPDF_ERR_PASSWORD
BULLETS = "•◦▪‣·–"


@dataclass(frozen=True, slots=True)
class Page:
    markdown: str
    width: int  # pixels at DPI
    height: int
    images: tuple[dict[str, Any], ...] = ()


def decoded(url: str) -> bytes:
    """The bytes of a `data:` URL; a backend fetches nothing itself."""
    head, comma, encoded = url.partition(",")
    if not head.startswith("data:") or not comma or not head.endswith(";base64"):
        raise BadRequest("The document must be a base64 data URL.", param="document")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest("The document's base64 cannot be decoded.", param="document") from None


# -- PDF -----------------------------------------------------------------------------------------


def is_pdf(data: bytes) -> bool:
    # Readers take a header anywhere in the first kilobyte.
    return b"%PDF-" in data[:1024]


def open_pdf(data: bytes) -> pypdfium2.PdfDocument:
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == PASSWORD_NEEDED:
            raise BadRequest("The PDF is encrypted; remove its password first.", param="document") from None
        raise BadRequest("The PDF is damaged and cannot be read.", param="document") from None
    if len(document) > MAX_PAGES:
        document.close()
        raise BadRequest(f"The PDF has more than {MAX_PAGES} pages.", param="document")
    return document


def pdf_page(document: pypdfium2.PdfDocument, index: int) -> Page:
    try:
        page = document[index]
    except pypdfium2.PdfiumError:
        raise BadRequest(f"Page {index} of the PDF is damaged and cannot be read.", param="document") from None
    width, height = page.get_size()
    text_page = page.get_textpage()
    try:
        markdown = "\n".join(_markdown(list(_lines(text_page)))).strip()
    finally:
        text_page.close()
        page.close()
    return Page(markdown, round(width * DPI / POINTS_PER_INCH), round(height * DPI / POINTS_PER_INCH))


def _lines(text_page: pypdfium2.PdfTextPage) -> Iterator[tuple[str, float]]:
    """Each line with the size of its type in points."""
    at = 0
    for line in text_page.get_text_range().split("\n"):
        text = line.rstrip("\r")
        # The size of a character in the middle: the first may be a drop cap or a bullet.
        size = pdfium.FPDFText_GetFontSize(text_page.raw, at + len(text) // 2) if text else 0.0
        yield text.strip(), round(size, 1)
        at += len(line) + 1


def _markdown(lines: list[tuple[str, float]]) -> Iterator[str]:
    weights: Counter[float] = Counter()
    for text, size in lines:
        weights[size] += len(text)
    body = weights.most_common(1)[0][0] if weights else 0.0
    for text, size in lines:
        if body and text and size >= body * HEADING:
            yield f"\n{'#' if size >= body * TITLE else '##'} {text}\n"
        elif text[:1] and text[0] in BULLETS:
            yield f"- {text[1:].strip()}"
        else:
            yield text


# -- pictures ------------------------------------------------------------------------------------


def picture_page(data: bytes, *, url: str, with_image: bool) -> Page:
    found = _picture(data)
    if found is None:
        raise BadRequest("The document is neither a PDF nor a PNG, JPEG, GIF or WebP picture.", param="document")
    kind, width, height = found
    name = f"img-0.{kind.lower()}"
    text = (
        f"# A page of {width} × {height} pixels\n\n![{name}]({name})\n\n"
        f"A {kind} picture of {len(data):,} bytes, {_format(width, height)}. This is a demo backend: it measures "
        "pictures and reads the text of PDFs, but recognises no letters."
    )
    image = {
        "id": name,
        "top_left_x": 0,
        "top_left_y": 0,
        "bottom_right_x": width,
        "bottom_right_y": height,
        "image_base64": url if with_image else None,
    }
    return Page(text, width, height, (image,))


def _format(width: int, height: int) -> str:
    if width == height:
        return "square"
    return "wider than high" if width > height else "higher than wide"


def _picture(data: bytes) -> tuple[str, int, int] | None:
    """Kind, width and height from the picture's header. Nothing is unpacked, so nothing can burst."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and len(data) >= 24:
        return "PNG", *struct.unpack(">II", data[16:24])
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return "GIF", *struct.unpack("<HH", data[6:10])
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        size = _webp_size(data)
        return ("WebP", *size) if size else None
    if data.startswith(b"\xff\xd8"):
        size = _jpeg_size(data)
        return ("JPEG", *size) if size else None
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Walks the segments to the frame header, which may be any of C0–CF but the tables among them."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
