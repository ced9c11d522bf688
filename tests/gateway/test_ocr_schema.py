"""Requests of `/v1/ocr`: which document, which pages, what is refused."""

from typing import Any

import pytest

from gateway.catalog import load
from gateway.errors import InvalidRequest
from gateway.ocr_api import _form
from gateway.ocr_schema import OcrRequest, page_numbers, parse_ocr_request
from tests.documents import data_url, pdf

CATALOG = load()
PDF = pdf("One", "Two", "Three")
URL = data_url(PDF, "application/pdf")


def parse(**fields: Any) -> OcrRequest:
    document = {"model": "MinerU2.5-Pro", "document": {"type": "document_url", "document_url": URL}, **fields}
    return parse_ocr_request(document, find_model=CATALOG.get)


def refused(**fields: Any) -> tuple[int, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    return caught.value.status, caught.value.param


def test_a_document_is_passed_on_with_the_accepted_fields() -> None:
    request = parse(pages="1", id="mine", include_image_base64=True, image_limit=3, table_format=None)
    assert request.body(model="mineru") == {
        "model": "mineru",
        "document": {"type": "document_url", "document_url": URL},
        "pages": [1],
        "id": "mine",
        "include_image_base64": True,
    }
    assert sorted(request.dropped) == ["image_limit", "table_format"]
    assert request.document.size_bytes == len(PDF)


@pytest.mark.parametrize("image", ["https://example.com/a.png", {"url": "https://example.com/a.png", "detail": "low"}])
def test_an_image_in_both_shapes(image: Any) -> None:
    document = parse(document={"type": "image_url", "image_url": image}).document
    assert (document.kind, document.url, document.is_remote) == ("image_url", "https://example.com/a.png", True)


def test_points_are_set_aside_for_the_pages_asked_for_or_counted() -> None:
    request = parse()
    assert request.document.data == PDF
    request.document = request.document.examined(pages=3)
    assert (request.expected_pages, request.document.data) == (3, b"")
    assert parse(pages=[0, 2]).expected_pages == 2


def test_a_fetched_document_becomes_a_data_url() -> None:
    request = parse(document={"type": "document_url", "document_url": "https://example.com/a.pdf"})
    assert request.expected_pages == 1
    request.document = request.document.fetched(media_type="application/pdf", data=PDF)
    assert request.body(model="m")["document"]["document_url"] == URL
    assert (request.document.data, request.document.size_bytes) == (PDF, len(PDF))


@pytest.mark.parametrize(("word", "meant"), [("TRUE", True), ("1", True), ("false", False), ("0", False), ("", None)])
def test_a_forms_words_for_yes_and_no(word: str, meant: bool | None) -> None:
    assert parse_ocr_request(form(word), find_model=CATALOG.get).fields.get("include_image_base64") is meant


def test_any_other_word_of_a_form_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_ocr_request(form("perhaps"), find_model=CATALOG.get)
    assert (caught.value.status, caught.value.param) == (400, "include_image_base64")


def form(word: str) -> Any:
    fields = {"model": b"MinerU2.5-Pro", "include_image_base64": word.encode(), 'file"; filename="a.pdf': PDF}
    parts = [b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)
             for name, value in fields.items()]  # fmt: skip
    return _form(b"".join(parts) + b"--x--\r\n", "multipart/form-data; boundary=x")


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        ([0], [0]),
        ([5, 3, 3], [3, 5]),
        ("0", [0]),
        ("0-5,8", [0, 1, 2, 3, 4, 5, 8]),
        (" 2 - 3 , 1", [1, 2, 3]),
        (["1-2", 0], [0, 1, 2]),
    ],
)
def test_pages(given: Any, numbers: list[int]) -> None:
    assert page_numbers(given) == numbers


@pytest.mark.parametrize(
    "pages",
    [
        [],
        "",
        "x",
        "1-",
        "-1",
        "3-1",
        "1,,2",
        "٣",
        [-1],
        [True],
        [1.5],
        [None],
        [100_000],
        3,
        {},
        "0-1000",
        "0-99999999",
    ],
)
def test_pages_that_are_none(pages: Any) -> None:
    assert refused(pages=pages) == (400, "pages")


@pytest.mark.parametrize(
    ("document", "param"),
    [
        ("x", "document"),
        ({}, "document.type"),
        ({"type": "file", "file_id": "x"}, "document.type"),
        ({"type": ["image_url"]}, "document.type"),
        ({"type": "document_url"}, "document.document_url"),
        ({"type": "document_url", "document_url": {"url": URL}}, "document.document_url"),
        ({"type": "document_url", "document_url": "data:application/pdf;base64,@@"}, "document.document_url"),
        ({"type": "document_url", "document_url": "data:application/pdf;base64,"}, "document.document_url"),
        ({"type": "document_url", "document_url": "data:text/plain,hello"}, "document.document_url"),
        ({"type": "document_url", "document_url": "http://example.com/a.pdf"}, "document.document_url"),
        ({"type": "document_url", "document_url": "file:///etc/passwd"}, "document.document_url"),
        ({"type": "document_url", "document_url": "https://"}, "document.document_url"),
        ({"type": "document_url", "document_url": "https://a:b@example.com/"}, "document.document_url"),
        ({"type": "document_url", "document_url": "https://example.com:99999/"}, "document.document_url"),
        ({"type": "document_url", "document_url": "https://[::1/"}, "document.document_url"),
        ({"type": "document_url", "document_url": "https://example.com/ a"}, "document.document_url"),
    ],
)
def test_documents_that_are_none(document: Any, param: str) -> None:
    assert refused(document=document) == (400, param)


def test_a_document_over_the_limit_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ocr_schema.MAX_DOCUMENT_BYTES", 300)
    assert refused() == (413, "document.document_url")


@pytest.mark.parametrize("model", ["DeepSeek-V4-Flash", "OmniVoice", "nothing"])
def test_a_model_of_another_endpoint_is_unknown(model: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(model=model)
    assert (caught.value.status, caught.value.message) == (400, f"Requested model {model} not supported")
