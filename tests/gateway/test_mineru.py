"""MinerU's own server behind `/v1/ocr`: what it is sent, and its results as pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.catalog import Endpoint, load
from gateway.mineru import CONTENT_TYPE, form, ocr_answer
from gateway.multipart import read_multipart
from gateway.ocr_schema import OcrRequest, parse_ocr_request
from gateway.upstreams import Kind, Upstream, UpstreamsError, read_file
from tests.documents import data_url, pdf

CATALOG = load()
PDF = pdf("One", "Two", "Three")
# Blocks as its content list has them, of the second and third page of a document.
BLOCKS: list[dict[str, Any]] = [
    {"type": "header", "text": "Annual report", "page_idx": 0},
    {"type": "text", "text": "Results", "text_level": 1, "page_idx": 0},
    {"type": "text", "text": "Income rose.", "page_idx": 0},
    {"type": "equation", "text": "$$\na+b\n$$", "text_format": "latex", "page_idx": 0},
    {"type": "image", "img_path": "images/a.jpg", "image_caption": ["Figure 1"], "page_idx": 0},
    {"type": "table", "table_body": "<table></table>", "table_caption": ["Table 1"], "page_idx": 1},
    {"type": "list", "list_items": ["- one", "- two"], "page_idx": 1},
    {"type": "page_number", "text": "3", "page_idx": 1},
]
SHEETS = [{"page_size": [612, 792]}, {"page_size": [595, 842]}]


def request(**fields: Any) -> OcrRequest:
    document = {"type": "document_url", "document_url": data_url(PDF, "application/pdf")}
    return parse_ocr_request({"model": "MinerU2.5-Pro", "document": document, **fields}, find_model=CATALOG.get)


def results(blocks: Any = BLOCKS, sheets: Any = SHEETS, **fields: Any) -> dict[str, Any]:
    made = {"content_list": json.dumps(blocks), "middle_json": json.dumps({"pdf_info": sheets}), **fields}
    return {"backend": "vlm", "version": "2.5", "results": {"document": made}}


def test_the_form() -> None:
    parts = read_multipart(form(request(pages=[2, 0]), backend="vlm-engine"), content_type=CONTENT_TYPE)
    file = parts.pop("files")
    assert (file.data, file.filename, file.media_type) == (PDF, "document.pdf", "application/pdf")
    assert {name: part.text for name, part in parts.items()} == {
        "backend": "vlm-engine",
        "return_md": "false",
        "return_content_list": "true",
        "return_middle_json": "true",
        "return_images": "false",
        "start_page_id": "0",
        "end_page_id": "2",
    }


def test_blocks_become_pages() -> None:
    answer = ocr_answer(results(images={"a.jpg": "data:image/jpeg;base64,AA=="}), request(pages="1-2"))
    first, second = answer["pages"]
    assert (first["index"], second["index"]) == (1, 2)
    assert first["markdown"] == "# Results\n\nIncome rose.\n\n$$\na+b\n$$\n\n![a.jpg](a.jpg)\n\nFigure 1"
    assert second["markdown"] == "Table 1\n\n<table></table>\n\n- one\n- two"
    assert first["images"][0]["image_base64"] == "data:image/jpeg;base64,AA=="
    assert first["dimensions"] == {"dpi": 200, "width": 1700, "height": 2200}
    assert answer["usage_info"] == {"pages_processed": 2, "doc_size_bytes": len(PDF)}


def test_pages_between_those_asked_for_are_neither_shown_nor_billed() -> None:
    answer = ocr_answer(results(sheets=[*SHEETS, *SHEETS]), request(pages=[1, 3, 4]))
    assert [page["index"] for page in answer["pages"]] == [1, 3, 4]
    assert answer["usage_info"]["pages_processed"] == 3


@pytest.mark.parametrize("document", [{"results": {}}, {"results": []}, {"results": {"a": 1}}, {"results": {"a": {}}}])
def test_results_that_are_none(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no "):
        ocr_answer(document, request())


def test_its_address_and_form_are_its_own() -> None:
    upstream = Upstream(name="m", base_url="http://host:8000", kind=Kind.MINERU, served_as={"MinerU2.5-Pro": "vlm"})
    made = upstream.request(Endpoint.OCR, b"x", request_id="1", read_timeout_seconds=1)
    first, host, content_type, *_ = made.head.decode().split("\r\n")
    assert (first, host) == ("POST /file_parse HTTP/1.1", "host: host:8000")
    assert content_type == f"content-type: {CONTENT_TYPE}"


def test_its_models_are_configured(tmp_path: Path) -> None:
    file = tmp_path / "upstreams.toml"
    file.write_text('[[upstream]]\nname = "m"\nkind = "mineru"\nbase_url = "http://host:8000"\n')
    with pytest.raises(UpstreamsError, match="needs models"):
        read_file(file)
