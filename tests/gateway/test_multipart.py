"""Forms as real clients write them, and broken ones."""

import httpx
import pytest

from gateway.errors import InvalidRequest
from gateway.multipart import Part, is_multipart, read_multipart


def form(**fields: object) -> tuple[bytes, str]:
    request = httpx.Request("POST", "http://x/", **fields)  # type: ignore[arg-type]
    return request.read(), request.headers["content-type"]


def test_fields_and_files() -> None:
    data = bytes(range(256)) + b"\r\n--x\r\n\r\n"
    files = {"file": ('a "b" é.pdf', data, "application/pdf"), "empty": ("e.bin", b"", "image/png")}
    body, content_type = form(data={"model": "模型", "pages": "0-1"}, files=files)
    assert is_multipart(content_type)
    parts = read_multipart(body, content_type=content_type)
    assert parts["model"].text == "模型"
    assert parts["pages"] == Part(b"0-1")
    assert (parts["file"].data, parts["file"].media_type) == (data, "application/pdf")
    assert parts["empty"] == Part(b"", "e.bin", "image/png")


def test_a_quoted_boundary() -> None:
    body = b'--a b\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--a b--\r\n'
    assert read_multipart(body, content_type='multipart/form-data; boundary="a b"') == {"x": Part(b"1")}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "multipart/form-data"),
        (b"", "multipart/form-data; boundary=x"),
        (b"--x\r\n", "multipart/form-data; boundary=x"),
        (b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\ncut', "multipart/form-data; boundary=x"),
        (b"--x\r\nno head--x--", "multipart/form-data; boundary=x"),
        (b"--x\r\nA: b\r\n\r\n1\r\n--x--", "multipart/form-data; boundary=x"),
        (b"--x\r\n" * 5000, "multipart/form-data; boundary=x"),
    ],
)
def test_broken_forms_are_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(InvalidRequest):
        read_multipart(body, content_type=content_type)


def test_text_has_to_be_utf_8() -> None:
    with pytest.raises(InvalidRequest):
        _ = Part(b"\xff").text
