"""The accepted request of `/v1/ocr`, checked and rebuilt: which document, which of its pages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from gateway.catalog import Endpoint
from gateway.data_url import data_url, read_data_url
from gateway.document_limits import MAX_PAGES
from gateway.errors import InvalidRequest
from gateway.fields import FindModel, Json, anything, flag, rebuild, refusal, served_model, text

MAX_DOCUMENT_BYTES = settings.MAX_DOCUMENT_MIB * 1024 * 1024
MAX_PAGE_NUMBER = 100_000
MAX_URL_CHARACTERS = 8_192
_RANGE = re.compile(r"\s*(\d{1,6})\s*(?:-\s*(\d{1,6})\s*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document:
    """`kind` is document_url or image_url, `url` a data URL or one to be fetched.

    `data` is what is in the data URL until it has been looked into; then `pages` are counted.
    """

    kind: str
    url: str
    data: bytes = field(default=b"", repr=False)
    media_type: str = ""
    size_bytes: int = 0
    pages: int = 1

    @property
    def is_remote(self) -> bool:
        return not self.url.startswith("data:")

    @property
    def param(self) -> str:
        return f"document.{self.kind}"

    def fetched(self, *, media_type: str, data: bytes) -> Document:
        url = data_url(media_type, data)
        return replace(self, url=url, data=data, media_type=media_type, size_bytes=len(data))

    def examined(self, *, pages: int) -> Document:
        return replace(self, data=b"", pages=pages)


@dataclass(slots=True)
class OcrRequest:
    """`fields` is the backend's body without `model` and `document`; `pages` in it is a sorted list."""

    model: str
    document: Document
    fields: Json
    dropped: list[str] = field(default_factory=list)

    @property
    def expected_pages(self) -> int:
        """What is set aside for it; what is billed are the pages that the backend processed."""
        wanted = self.fields.get("pages")
        return len(wanted) if wanted else self.document.pages

    def body(self, *, model: str) -> Json:
        document = {"type": self.document.kind, self.document.kind: self.document.url}
        return {**self.fields, "model": model, "document": document}


def parse_ocr_request(document: Json, *, find_model: FindModel) -> OcrRequest:
    body, dropped = rebuild(document, checks=FIELDS, required=("model", "document"))
    model = body.pop("model")
    found = _document(body.pop("document"))
    if "pages" in body:
        body["pages"] = page_numbers(body["pages"])
    served_model(model, endpoint=Endpoint.OCR, find_model=find_model)
    return OcrRequest(model, found, body, dropped)


FIELDS = {
    "model": text,
    "document": anything,
    "pages": anything,
    "include_image_base64": flag,
    "id": text,
}


def page_numbers(value: Any) -> list[int]:
    """Numbers from 0, given as a list or like `"0-5,8"`: each once, in order."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not parts:
        raise _bad_pages()
    numbers: set[int] = set()
    for part in parts:
        first, last = _range(part)
        if last - first >= MAX_PAGES:
            raise _too_many_pages()
        numbers.update(range(first, last + 1))
        if len(numbers) > MAX_PAGES:
            raise _too_many_pages()
    return sorted(numbers)


def _range(part: Any) -> tuple[int, int]:
    if isinstance(part, int) and not isinstance(part, bool) and 0 <= part < MAX_PAGE_NUMBER:
        return part, part
    match = _RANGE.fullmatch(part) if isinstance(part, str) else None
    if match is None:
        raise _bad_pages()
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last or last >= MAX_PAGE_NUMBER:
        raise _bad_pages()
    return first, last


def _bad_pages() -> InvalidRequest:
    return refusal("pages", 'a list of page numbers from 0, or ranges like "0-5,8"')


def _too_many_pages() -> InvalidRequest:
    return refusal("pages", f"at most {MAX_PAGES} pages")


def _document(value: Any) -> Document:
    if not isinstance(value, dict):
        raise refusal("document", "an object")
    kind = value.get("type")
    if kind not in ("document_url", "image_url"):
        raise refusal("document.type", "document_url or image_url")
    url = value.get(kind)
    if kind == "image_url" and isinstance(url, dict):
        url = url.get("url")
    param = f"document.{kind}"
    if not isinstance(url, str):
        raise refusal(param, "a URL")
    if url[:5].lower() == "data:":
        inline = read_data_url(url, param=param, limit_bytes=MAX_DOCUMENT_BYTES)
        if not inline.data:
            raise refusal(param, "a document, and it is empty")
        return Document(kind, f"data:{url[5:]}", inline.data, inline.media_type, len(inline.data))
    _check_remote(url, param)
    return Document(kind, url)


def _check_remote(url: str, param: str) -> None:
    """Its form only; where it leads is checked when it is fetched."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "https" and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        usable = False
    if not usable or len(url) > MAX_URL_CHARACTERS or not url.isascii() or any(c <= " " for c in url):
        raise refusal(param, "a data URL or an https URL")
