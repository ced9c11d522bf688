"""Hostile input against a web process: never a 500, never HTML, the documented envelope, the field at fault named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.openapi import BODIES, body_schema
from tests.documents import data_url, png
from tests.gateway.test_openapi import PROBES, takes
from tests.installation import Installation, WebProcess

PATHS = list(BODIES)
EXAMPLES = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PICTURE = data_url(png(8, 8), "image/png")
VALID: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": "Hi [[tokens=2]]"}]},
    "messages": {
        "model": "DeepSeek-V4-Flash", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi [[tokens=2]]"}],
    },
    "messages/count_tokens": {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": "Hi"}]},
    "ocr": {"model": "MinerU2.5-Pro", "document": {"type": "image_url", "image_url": PICTURE}},
    "audio/speech": {"model": "OmniVoice", "input": "Hi"},
    "systemone": {
        "model": "Clef", "state": "It rains.",
        "questions": {"wet": {"type": "noul", "instructions": "Is it wet?", "criteria": "Water falls."}},
    },
}  # fmt: skip
NAMES = sorted({name for path in PATHS for name in body_schema(path)["properties"]})

texts = st.text(st.characters(codec="utf-8"), max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | texts
words = st.sampled_from(
    ["role", "content", "type", "text", "user", "assistant", "tool", "system", "image_url", "url", "tool_calls",
     "function", "name", "arguments", "json_schema", "effort", "criteria", "noul", "choice", "score", PICTURE]
)  # fmt: skip
values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | texts, inner, max_size=3),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(NAMES) | texts, values, max_size=6)
RAW: list[bytes] = [
    b"", b"null", b"[]", b"7", b'"a"', b"{", b"{}x", b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}', b'{"a":"\xff"}',
    b'{"a":"\\ud800"}', b'\xef\xbb\xbf{}', b"\x00", b"[" * 100_000, b'{"a":' * 50_000, b"<html>", b"a=1&b=2",
    b'{"model":"DeepSeek-V4-Flash","model":7}', b"1" * 10_000, b'{"messages":' + b"[" * 500 + b"]" * 500 + b"}",
]  # fmt: skip


@pytest.fixture(scope="module")
def client(demo_web: WebProcess, demo_installation: Installation) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {demo_installation.secret}"}
    with httpx.Client(base_url=demo_web.url, headers=headers, timeout=30) as client:
        yield client
        assert client.get("/healthz").status_code == 200


def checked(path: str, answer: httpx.Response) -> httpx.Response:
    """What holds for every answer of the gateway."""
    assert answer.status_code not in (500, 502), answer.text
    assert answer.headers["x-request-id"]
    kind = answer.headers["content-type"]
    assert kind.startswith(("application/json", "text/event-stream", "audio/")), kind
    if answer.status_code >= 400:
        assert kind == "application/json"
        document = answer.json()
        if path.startswith("messages"):
            assert (document["type"], document["request_id"]) == ("error", answer.headers["x-request-id"])
            assert {"type", "message"} <= document["error"].keys()
        else:
            assert {"message", "type", "param", "code"} <= document["error"].keys()
        assert isinstance(document["error"]["message"], str)
        assert "Traceback" not in answer.text
    return answer


def post(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return checked(path, client.post(f"/v1/{path}", content=body, headers=headers))


@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_request_at_all_is_a_400(client: httpx.Client, path: str) -> None:
    for raw in RAW:
        assert post(client, path, raw).status_code in (400, 413, 422), raw[:60]


@pytest.mark.parametrize("path", PATHS)
@EXAMPLES
@given(document=documents)
def test_random_documents_are_refused_in_the_documented_shape(
    client: httpx.Client, path: str, document: dict[str, Any]
) -> None:
    post(client, path, json.dumps(document).encode())


@pytest.mark.parametrize("path", PATHS)
@EXAMPLES
@given(data=st.data())
def test_almost_good_documents_break_nothing(client: httpx.Client, path: str, data: st.DataObject) -> None:
    names = sorted(body_schema(path)["properties"])
    changes = data.draw(st.dictionaries(st.sampled_from(names), values, min_size=1, max_size=2))
    post(client, path, json.dumps(VALID[path] | changes).encode())


@pytest.mark.parametrize("path", [path for path in PATHS if not path.startswith("messages")])
def test_a_field_of_the_wrong_kind_is_named(client: httpx.Client, path: str) -> None:
    assert post(client, path, json.dumps(VALID[path]).encode()).status_code == 200
    for name, described in body_schema(path)["properties"].items():
        for value in PROBES:
            if takes(described, value) or name == "thinking":
                continue
            answer = post(client, path, json.dumps(VALID[path] | {name: value}).encode())
            assert answer.status_code in (400, 422), (name, value)
            assert str(answer.json()["error"]["param"]).startswith(name), (name, value, answer.text)


@pytest.mark.parametrize("path", PATHS)
def test_a_missing_field_is_named(client: httpx.Client, path: str) -> None:
    for name in body_schema(path)["required"]:
        document = {key: value for key, value in VALID[path].items() if key != name}
        answer = post(client, path, json.dumps(document).encode())
        assert answer.status_code == 400
        assert name in answer.text


@EXAMPLES
@given(query=st.binary(max_size=60), path=st.sampled_from(["/api/usage", "/api/profile/model-usage", "/v1/models"]))
def test_random_queries_break_nothing(client: httpx.Client, query: bytes, path: str) -> None:
    escaped = "".join(f"%{byte:02x}" if byte < 0x30 or byte > 0x7A else chr(byte) for byte in query)
    checked(path, client.get(httpx.URL(path).copy_with(raw_path=f"{path}?{escaped}".encode())))


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
@pytest.mark.parametrize(
    "path",
    ["/v1/", "/v1/chat/completions", "/v1/models/x/../y", "/api/v1/nothing", "/api/me", "/spaces/", "/spaces/a/b"],
)
def test_every_method_on_every_kind_of_path_is_answered_in_json(client: httpx.Client, method: str, path: str) -> None:
    checked(path, client.request(method, path))
