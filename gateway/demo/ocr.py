"""`POST /v1/ocr`: the request, and the answer to it."""

from typing import Any

from gateway.demo import document
from gateway.demo.document import Page
from gateway.demo.refusal import BadRequest, UnreadableBody

type Json = dict[str, Any]


def answer(body: Json, *, model: str) -> Json:
    """Raises `Refusal` for what cannot be read."""
    url = _url(body.get("document"))
    data = document.decoded(url)
    if document.is_pdf(data):
        pages = _pdf_pages(data, wanted=body.get("pages"))
    else:
        _indexes(body.get("pages"), pages=1)
        pages = {0: document.picture_page(data, url=url, with_image=body.get("include_image_base64") is True)}
    return {
        "pages": [_page(index, page) for index, page in pages.items()],
        "model": model,
        "document_annotation": None,
        "usage_info": {"pages_processed": len(pages), "doc_size_bytes": len(data)},
    }


def _pdf_pages(data: bytes, *, wanted: object) -> dict[int, Page]:
    opened = document.open_pdf(data)
    try:
        return {index: document.pdf_page(opened, index) for index in _indexes(wanted, pages=len(opened))}
    finally:
        opened.close()


def _page(index: int, page: Page) -> Json:
    dimensions = {"dpi": document.DPI, "height": page.height, "width": page.width}
    return {"index": index, "markdown": page.markdown, "images": list(page.images), "dimensions": dimensions}


def _url(value: object) -> str:
    if not isinstance(value, dict):
        raise UnreadableBody("missing field `document`")
    kind = value.get("type")
    url = value.get(str(kind)) if kind in ("document_url", "image_url") else None
    if isinstance(url, dict):
        url = url.get("url")
    if not isinstance(url, str):
        raise UnreadableBody("document: expected a document_url or an image_url")
    return url


def _indexes(value: object, *, pages: int) -> list[int]:
    """The pages asked for, each once and in order; all without a wish."""
    if value is None:
        return list(range(pages))
    ranges = value.split(",") if isinstance(value, str) else value
    if not isinstance(ranges, list):
        raise UnreadableBody("pages: expected a list of numbers or text like 0-5,8")
    indexes: set[int] = set()
    for part in ranges:
        first, _, last = str(part)[:40].partition("-")
        if not first.strip().isdecimal() or not (last or first).strip().isdecimal():
            raise UnreadableBody(f"pages: {part!r} is no page number or range")
        begin, end = int(first), int(last or first)
        if begin > end or end >= pages:
            raise BadRequest(f"pages: the document has {pages} pages, numbered from 0.", param="pages")
        indexes.update(range(begin, end + 1))
    if not indexes:
        raise BadRequest("pages: no page is asked for.", param="pages")
    return sorted(indexes)
