"""The process in which PDFs of strangers are opened: `python -m gateway.pdf_reader`, spoken to by `gateway.pdfs`.

PDFium is C++ and works in the memory of whoever calls it. Here a file that crashes it, eats up the memory or never
ends takes down a process that holds nothing: no environment, no database, no right to write a file.

A question is a line of JSON with the `size` of the file that follows it; an answer the same, the file being what
was made. It ends with its standard input, and so with the process that started it.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import pypdfium2
import pypdfium2.raw as pdfium

from gateway.document_limits import ENCRYPTED, MAX_PAGES, MAX_PIXELS, TOO_LARGE, UNREADABLE, Unfit, check_streams

type Json = dict[str, Any]

MEMORY_BYTES = 2 * 1024 * 1024 * 1024
# How model servers draw pages for their models.
DPI = 200
POINTS_PER_INCH = 72
MAX_SHOWN_PIXELS = 4_000_000
COLOURS = 3


def main() -> None:
    confine()
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    send(answers, {})  # begun: what fails from here on is the document's fault
    while line := questions.readline():
        question = json.loads(line)
        send(answers, *answer(question, questions.read(question["size"])))


def confine() -> None:
    # Ctrl-C in a terminal reaches this process too; its parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)
    limits = {resource.RLIMIT_AS: MEMORY_BYTES, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    for limit, value in limits.items():
        try:
            resource.setrlimit(limit, (value, value))
        except (ValueError, OSError):
            # Not every system knows each of them; the time limit holds everywhere.
            continue


def send(answers: BinaryIO, head: Json, made: bytes = b"") -> None:
    answers.write(json.dumps({**head, "size": len(made)}).encode() + b"\n" + made)
    answers.flush()


def answer(question: Json, data: bytes) -> tuple[Json, bytes]:
    try:
        match question["do"]:
            case "examine":
                return {"pages": examine(data, question["pages"])}, b""
            case "draw":
                return {}, draw(data, question["page"], width=question["width"])
            case _:
                return {}, extract(data, question["page"])
    except Unfit as error:
        return {"refusal": error.message, "code": error.code, "param": error.param}, b""


# -- what can be asked ---------------------------------------------------------------------------


def examine(data: bytes, wanted: list[int] | None) -> int:
    """How many pages the PDF has. Raises Unfit unless those wanted (None: all) can be read."""
    check_streams(data)
    with opened(data) as document:
        count = len(document)
        pages = range(count) if wanted is None else wanted
        if not count:
            raise Unfit("The PDF has no pages", code=UNREADABLE)
        if len(pages) > MAX_PAGES:
            text = f"The PDF has {count:,} pages; at most {MAX_PAGES:,} are read at once. Choose some with pages"
            raise Unfit(text, code=TOO_LARGE, param="pages")
        if pages[-1] >= count:
            text = f"The PDF has {count:,} pages, numbered from 0; there is no page {pages[-1]}"
            raise Unfit(text, code=None, param="pages")
        for index in pages:
            _check_sheet(document, index)
    return count


def _check_sheet(document: pypdfium2.PdfDocument, index: int) -> None:
    with _readable(f"Page {index} of the PDF"):
        width, height = document.get_page_size(index)
    scale = DPI / POINTS_PER_INCH
    if width * scale * height * scale > MAX_PIXELS:
        inches = f"{width / POINTS_PER_INCH:,.0f} × {height / POINTS_PER_INCH:,.0f} inches"
        raise Unfit(f"Page {index} of the PDF measures {inches}, which is too large to be read", code=TOO_LARGE)


def draw(data: bytes, index: int, *, width: int) -> bytes:
    """A page as a PNG of that width, or narrower where it would be very high."""
    with opened(data) as document, _readable(f"Page {index} of the PDF"):
        page = document[index]
        across, down = page.get_size()
        scale = min(width / across, (MAX_SHOWN_PIXELS / (across * down)) ** 0.5)
        return _png(page.render(scale=scale, rev_byteorder=True))


def extract(data: bytes, index: int) -> bytes:
    """A PDF of that page alone."""
    with opened(data) as document, _readable(f"Page {index} of the PDF"):
        alone = pypdfium2.PdfDocument.new()
        alone.import_pages(document, [index])
        written = io.BytesIO()
        alone.save(written)
        return written.getvalue()


# -- PDFium --------------------------------------------------------------------------------------


@contextmanager
def opened(data: bytes) -> Iterator[pypdfium2.PdfDocument]:
    # Not by the package's own opening: for a PDF without pages it takes the last file's error for this one's.
    loaded = pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    if not loaded:
        if pdfium.FPDF_GetLastError() in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY):
            raise Unfit("The PDF is encrypted. Remove its password first", code=ENCRYPTED)
        raise Unfit("The PDF is damaged and cannot be read", code=UNREADABLE)
    document = pypdfium2.PdfDocument(loaded)
    try:
        yield document
    finally:
        document.close()


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except (pypdfium2.PdfiumError, ZeroDivisionError):
        raise Unfit(f"{what} is damaged and cannot be read", code=UNREADABLE) from None


def _png(bitmap: pypdfium2.PdfBitmap) -> bytes:
    packed, row_bytes = memoryview(bitmap.buffer).cast("B"), bitmap.width * COLOURS
    # Filter 0: each row as it is.
    rows = b"".join(
        b"\0" + packed[at : at + row_bytes] for at in range(0, bitmap.stride * bitmap.height, bitmap.stride)
    )
    header = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows, 4)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, chunks))


def _chunk(chunk: tuple[bytes, bytes]) -> bytes:
    kind, data = chunk
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    main()
