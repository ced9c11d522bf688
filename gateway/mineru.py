"""MinerU's own server (`/file_parse`), spoken to for `/v1/ocr`: a form out, its results back as pages of Markdown.

It takes one run of pages and numbers those it returns from the run's first. Blocks become Markdown here, as the
whole document's Markdown does not say where a page ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import orjson

from gateway.data_url import read_data_url
from gateway.ocr_schema import MAX_DOCUMENT_BYTES, OcrRequest

type Json = dict[str, Any]

BOUNDARY = f"mineru-{secrets.token_hex(16)}"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY}"
LAST_PAGE = 99_999
DPI = 200
POINTS_PER_INCH = 72
# Running heads, page numbers and the like: of the sheet, not of the text.
OF_THE_SHEET = frozenset({"header", "footer", "page_number", "aside_text", "page_footnote", "discarded"})


def form(ocr: OcrRequest, *, backend: str) -> bytes:
    """`backend` is MinerU's name of its engine, such as vlm-vllm-async-engine: what the model is served as."""
    document = read_data_url(ocr.document.url, param="document", limit_bytes=MAX_DOCUMENT_BYTES)
    wanted = ocr.fields.get("pages")
    fields = {
        "backend": backend,
        "return_md": "false",
        "return_content_list": "true",
        "return_middle_json": "true",
        "return_images": "true" if ocr.fields.get("include_image_base64") else "false",
        "start_page_id": str(wanted[0] if wanted else 0),
        "end_page_id": str(wanted[-1] if wanted else LAST_PAGE),
    }
    suffix = document.media_type.partition("/")[2] or "pdf"
    file = f'name="files"; filename="document.{suffix}"\r\nContent-Type: {document.media_type}'
    parts = [(f'name="{name}"', value.encode("ascii")) for name, value in fields.items()]
    return (
        b"".join(_part(head, data) for head, data in [*parts, (file, document.data)]) + f"--{BOUNDARY}--\r\n".encode()
    )


def _part(head: str, data: bytes) -> bytes:
    return f"--{BOUNDARY}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"


def ocr_answer(document: Json, ocr: OcrRequest) -> Json:
    """Raises ValueError for results that are none. Pages that nobody asked for are left out, and not billed."""
    result = next(iter(document["results"].values()), None) if isinstance(document.get("results"), dict) else None
    if not isinstance(result, dict):
        raise ValueError("no result")
    sheets = _parsed(result.get("middle_json"), dict).get("pdf_info")
    if not isinstance(sheets, list):
        raise ValueError("no pages")
    blocks = _parsed(result.get("content_list"), list)
    images = result.get("images")
    wanted = ocr.fields.get("pages")
    first = wanted[0] if wanted else 0
    pages = [
        _page(first + index, sheet, _of_page(blocks, index), images if isinstance(images, dict) else {})
        for index, sheet in enumerate(sheets)
        if not wanted or first + index in wanted
    ]
    usage = {"pages_processed": len(pages), "doc_size_bytes": ocr.document.size_bytes}
    return {"pages": pages, "model": ocr.model, "document_annotation": None, "usage_info": usage}


def _parsed[T: (dict[str, Any], list[Any])](text: Any, kind: type[T]) -> T:
    """A field that holds JSON as text; some versions hold it as it is."""
    value = orjson.loads(text) if isinstance(text, str) else text
    return value if isinstance(value, kind) else kind()


def _of_page(blocks: list[Any], index: int) -> list[Json]:
    return [block for block in blocks if isinstance(block, dict) and block.get("page_idx") == index]


def _page(index: int, sheet: Any, blocks: list[Json], images: Json) -> Json:
    size = sheet.get("page_size") if isinstance(sheet, dict) else None
    width, height = size if isinstance(size, list) and len(size) == 2 else (0, 0)
    shown = [name for block in blocks if (name := _image_name(block))]
    return {
        "index": index,
        "markdown": "\n\n".join(text for block in blocks for text in _markdown(block) if text),
        "images": [{"id": name, "image_base64": images.get(name)} | _NO_PLACE for name in shown],
        "dimensions": {"dpi": DPI, "width": _pixels(width), "height": _pixels(height)},
    }


_NO_PLACE = {"top_left_x": None, "top_left_y": None, "bottom_right_x": None, "bottom_right_y": None}


def _pixels(points: Any) -> int:
    return round(points * DPI / POINTS_PER_INCH) if isinstance(points, int | float) else 0


def _image_name(block: Json) -> str:
    path = block.get("img_path")
    return path.rpartition("/")[2] if block.get("type") in ("image", "chart") and isinstance(path, str) else ""


def _markdown(block: Json) -> Iterator[str]:
    kind = block.get("type")
    if kind in OF_THE_SHEET:
        return
    if name := _image_name(block):
        yield f"![{name}]({name})"
    if text := _text(block.get("text")):
        level = block.get("text_level")
        yield f"{'#' * min(level, 6)} {text}" if isinstance(level, int) and level > 0 else text
    if items := block.get("list_items"):
        yield _text(items)
    for name in ("image_caption", "table_caption", "code_caption", "table_body", "code_body", "image_footnote",
                 "table_footnote"):  # fmt: skip
        yield _text(block.get(name))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(str(item) for item in value)
    return value.strip() if isinstance(value, str) else ""
