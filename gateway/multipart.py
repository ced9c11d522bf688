"""`multipart/form-data` as browsers and HTTP clients send it, read from a body that is already in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gateway.errors import InvalidRequest

MAX_PARTS = 100
MAX_HEAD_BYTES = 16_384
_PARAMETER = re.compile(r';\s*([\w*]+)=("(?:[^"\\]|\\.)*"|[^;]*)')


@dataclass(frozen=True, slots=True)
class Part:
    data: bytes
    filename: str = ""
    media_type: str = ""

    @property
    def text(self) -> str:
        try:
            return self.data.decode()
        except UnicodeDecodeError:
            raise InvalidRequest("A form field is not UTF-8") from None


def is_multipart(content_type: str) -> bool:
    return content_type.split(";")[0].strip().lower() == "multipart/form-data"


def read_multipart(body: bytes, *, content_type: str) -> dict[str, Part]:
    """The parts by their names; of several with one name the last. Raises InvalidRequest where malformed."""
    boundary = _parameters(content_type).get("boundary", "")
    if not 1 <= len(boundary) <= 200 or not boundary.isascii():
        raise InvalidRequest("The form's boundary is missing")
    delimiter = b"\r\n--" + boundary.encode("ascii")
    pieces = (b"\r\n" + body).split(delimiter, MAX_PARTS + 1)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise InvalidRequest(f"The form is cut short or has more than {MAX_PARTS} parts")
    return dict(_part(piece) for piece in pieces[1:-1])


def _part(piece: bytes) -> tuple[str, Part]:
    start = piece.find(b"\r\n")
    end = piece.find(b"\r\n\r\n", start, start + MAX_HEAD_BYTES)
    if piece[:start].strip() or end < 0:
        raise InvalidRequest("A part of the form has no head")
    headers = _headers(piece[start + 2 : end])
    disposition = _parameters(headers.get("content-disposition", ""))
    if "name" not in disposition:
        raise InvalidRequest("A part of the form has no name")
    media_type = headers.get("content-type", "").split(";")[0].strip().lower()
    return disposition["name"], Part(piece[end + 4 :], disposition.get("filename", ""), media_type)


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("utf-8", "replace").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _parameters(header: str) -> dict[str, str]:
    found = {}
    for name, value in _PARAMETER.findall(header):
        quoted = value.startswith('"') and value.endswith('"') and len(value) >= 2
        found[name.lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value.strip()
    return found
