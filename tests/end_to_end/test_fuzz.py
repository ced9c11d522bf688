"""Hostile input against a web process: never a 500, never HTML, the documented envelope, the field at fault named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openapi import body_schema
from tests.end_to_end.fuzz_inputs import PATHS, RAW, TIMEOUT_SECONDS, VALID, documents, fuzzed, values
from tests.gateway.test_openapi import PROBES, takes
from tests.installation import Installation, WebProcess

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def client(demo_web: WebProcess, demo_installation: Installation) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {demo_installation.secret}"}
    with httpx.Client(base_url=demo_web.url, headers=headers, timeout=30) as client:
        yield client
        assert client.get("/healthz").status_code == 200


def checked(path: str, answer: httpx.Response, *, own: bool = True) -> httpx.Response:
    """What holds for every answer of the gateway; of what is not its `own` it vouches for the head alone."""
    assert answer.status_code not in (500, 502), answer.text
    assert answer.headers["x-request-id"]
    if not own:
        return answer
    kind = answer.headers["content-type"]
    assert kind.startswith(("application/json", "text/event-stream", "text/csv", "audio/")), kind
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
@fuzzed
@given(document=documents)
def test_random_documents_are_refused_in_the_documented_shape(
    client: httpx.Client, path: str, document: dict[str, Any]
) -> None:
    post(client, path, json.dumps(document).encode())


@pytest.mark.parametrize("path", PATHS)
@fuzzed
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


@fuzzed
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
