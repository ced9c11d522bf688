"""Small documents for tests, made here so that every byte of them is known."""

from __future__ import annotations

import base64
import struct
import zlib


def pdf(*pages: str) -> bytes:
    """A PDF with a page for each text: its first line set large, the others as running text."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>"
        % (len(pages), b" ".join(b"%d 0 R" % (4 + 2 * index) for index in range(len(pages)))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for index, text in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * index)
        )
        content = _content(text.split("\n"))
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    return _file(objects)


def _content(lines: list[str]) -> bytes:
    return b"\n".join(
        b"BT /F1 %d Tf 72 %d Td (%s) Tj ET" % (24 if at == 0 else 12, 700 - 30 * at, line.encode("latin-1"))
        for at, line in enumerate(lines)
    )


def _file(objects: list[bytes], trailer: bytes = b"") -> bytes:
    data = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    return data + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R %s>>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, table, len(objects) + 1, trailer, len(data))
    )


def encrypted_pdf() -> bytes:
    """One whose password nobody knows: the check value fits none."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count 0 /Kids [] >>",
        b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >>" % (b"11" * 32, b"22" * 32),
    ]
    return _file(objects, trailer=b"/Encrypt 3 0 R /ID [<%s> <%s>] " % (b"33" * 16, b"33" * 16))


def png(width: int, height: int) -> bytes:
    """A black picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(3 * width)) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def with_stream(document: bytes, data: bytes, dictionary: bytes = b"/Filter /FlateDecode") -> bytes:
    """A PDF with one more stream, which no page uses."""
    stream = b"99 0 obj\n<< %s /Length %d >>\nstream\n%s\nendstream\nendobj\n" % (dictionary, len(data), data)
    return document.replace(b"xref\n", stream + b"xref\n", 1)
