"""Each status of the contract, provoked over a socket in both dialects: type, code, headers and a request id."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import DEAD, USER, GatewayProcess
from tests.installation import Installation, WebProcess

# What a client can provoke at will, and what takes a fault: a journal that is full, a bug, an impatient gateway.
PRELUDE = """
import django; django.setup(set_prefix=False)
import os, gateway.anthropic, gateway.schema
from billing.journal import Journal
append = Journal._append
def full(self, lines):
    return 0 if os.path.exists(os.environ["FULL_FILE"]) else append(self, lines)
Journal._append = full
parse = gateway.schema.parse_chat_request
def parse_or_break(document, **rest):
    if document["model"] == "breaks":
        raise ZeroDivisionError("what nobody outside needs to know")
    return parse(document, **rest)
import gateway.runtime
gateway.runtime.parse_chat_request = parse_or_break
"""
KEYS = """
import json, django; django.setup()
from accounts.keys import KeyTerms, issue_key
from accounts.models import Team
terms = {"narrow": {"models": ["MiniCPM5-2B"]}, "slow": {"rpm_limit": 1}}
make = lambda name, own: issue_key(team=Team.objects.first(), created_by=None, name=name, terms=KeyTerms(**own)).secret
print(json.dumps({name: make(name, own) for name, own in terms.items()}))
"""


class Site(NamedTuple):
    web: WebProcess
    full_file: Path
    keys: dict[str, str]
    upstream: FakeUpstream

    def ask(self, path: str, *, key: str = "", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [USER], "max_tokens": 9} | fields
        return self.send("POST", path, key=key, content=json.dumps(body).encode())

    def send(self, method: str, path: str, *, key: str = "", **request: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.keys[key or 'first']}"} | request.pop("headers", {})
        return httpx.request(method, f"{self.web.url}/v1/{path}", headers=headers, timeout=30, **request)


@pytest.fixture(scope="module")
def running(gateway_installation: Installation) -> Iterator[tuple[WebProcess, Path, dict[str, str]]]:
    full_file = gateway_installation.folder / "journal-is-full"
    own = {"FULL_FILE": str(full_file), "REQUEST_TIMEOUT_SECONDS": "1"}
    web = gateway_installation.start_web(environment=own, prelude=PRELUDE)
    keys = json.loads(gateway_installation.run_python(KEYS)) | {"first": gateway_installation.secret}
    yield web, full_file, keys
    web.process.terminate()
    web.process.wait(20)


@pytest.fixture
def site(running: tuple[WebProcess, Path, dict[str, str]], upstream: FakeUpstream) -> Iterator[Site]:
    yield Site(*running, upstream)
    running[1].unlink(missing_ok=True)


type Provoke = Callable[[Site, str], httpx.Response]


def no_credential(site: Site, path: str) -> httpx.Response:
    return site.send("POST", path, headers={"authorization": ""})


def out_of_scope(site: Site, path: str) -> httpx.Response:
    return site.ask(path, key="narrow")


def unknown_path(site: Site, path: str) -> httpx.Response:
    return site.ask(f"{path}/nothing")


def wrong_method(site: Site, path: str) -> httpx.Response:
    return site.send("GET", path)


def too_large(site: Site, path: str) -> httpx.Response:
    return site.send("POST", path, content=b"{" + b" " * (20 * 2**20))


def packed(site: Site, path: str) -> httpx.Response:
    return site.send("POST", path, content=b"\x1f\x8b", headers={"content-encoding": "gzip"})


def malformed(site: Site, path: str) -> httpx.Response:
    return site.send("POST", path, content=b"{]")


def unknown_model(site: Site, path: str) -> httpx.Response:
    return site.ask(path, model="gpt-7")


def too_often(site: Site, path: str) -> httpx.Response:
    site.ask(path, key="slow", model="gpt-7")
    site.upstream.then(replies.answer(replies.completion()))
    site.ask(path, key="slow")
    return site.ask(path, key="slow")


def a_bug(site: Site, path: str) -> httpx.Response:
    return site.ask(path, model="breaks")


def dead_server(site: Site, path: str) -> httpx.Response:
    return site.ask(path, model=DEAD)


def no_journal(site: Site, path: str) -> httpx.Response:
    site.full_file.touch()
    return site.ask(path)


def silent_server(site: Site, path: str) -> httpx.Response:
    site.upstream.then(replies.silence_after())
    return site.ask(path)


class Row(NamedTuple):
    provoke: Provoke
    status: int
    type: str
    code: str | None
    anthropic_type: str
    headers: dict[str, str] = {}


INVALID = "invalid_request_error"
ROWS = [
    Row(malformed, 400, INVALID, None, INVALID),
    Row(unknown_model, 400, INVALID, None, INVALID),
    Row(no_credential, 401, INVALID, "invalid_api_key", "authentication_error", {"www-authenticate": "Bearer"}),
    Row(out_of_scope, 403, INVALID, "permission_denied", "permission_error"),
    Row(unknown_path, 404, INVALID, "not_found", "not_found_error"),
    Row(wrong_method, 405, INVALID, "method_not_allowed", INVALID, {"allow": "POST"}),
    Row(too_large, 413, INVALID, "request_too_large", "request_too_large"),
    Row(packed, 415, INVALID, "unsupported_media_type", INVALID),
    Row(too_often, 429, "rate_limit_error", "token_rate_limit_exceeded", "rate_limit_error"),
    Row(a_bug, 500, "api_error", None, "api_error"),
    Row(dead_server, 502, "api_error", "upstream_unavailable", "api_error", {"retry-after": "1"}),
    Row(no_journal, 503, "api_error", "upstream_saturated", "overloaded_error", {"retry-after": "5"}),
    Row(silent_server, 504, "timeout_error", "timeout", "timeout_error"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.status}-{row.provoke.__name__}")
def test_a_status_has_its_type_and_code(site: Site, row: Row) -> None:
    response = row.provoke(site, "chat/completions")
    assert response.status_code == row.status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == (row.type, row.code)
    _is_told_as_it_should(response, row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.status}-{row.provoke.__name__}")
def test_a_status_in_the_words_of_anthropic(site: Site, row: Row) -> None:
    response = row.provoke(site, "messages")
    assert response.status_code == row.status
    document = response.json()
    assert set(document) == {"type", "error", "request_id"}
    assert (document["type"], document["error"]["type"]) == ("error", row.anthropic_type)
    assert document["request_id"] == response.headers["x-request-id"]
    _is_told_as_it_should(response, row)


def _is_told_as_it_should(response: httpx.Response, row: Row) -> None:
    assert response.headers["content-type"] == "application/json"
    uuid.UUID(response.headers["x-request-id"])
    assert {name: response.headers.get(name) for name in row.headers} == row.headers
    if row.status == 500:
        request_id = response.headers["x-request-id"]
        assert response.json()["error"]["message"] == f"Internal error. Request id: {request_id}"


@pytest.mark.parametrize("path", ["systemone"])
def test_a_question_that_cannot_be_asked_is_a_422(site: Site, path: str) -> None:
    questions = {"q": {"type": "poem"}}
    response = site.send("POST", path, json={"model": "d3", "state": "x", "questions": questions})
    assert response.status_code == 422
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == (INVALID, None, "questions.q.type")


def test_tokens_are_counted_for_the_models_that_a_key_is_for(site: Site) -> None:
    assert site.ask("messages/count_tokens", key="narrow").status_code == 403
    # The only server of the other model is dead: nothing is asked of it.
    counted = site.ask("messages/count_tokens", key="narrow", model=DEAD)
    assert counted.json() == {"input_tokens": len(json.dumps(USER["content"])) // 4 + 4}


def test_a_server_that_refuses_to_serve_is_passed_on_with_its_own_words(site: Site) -> None:
    """502 and 503 of the only replica: its status, its body, its Retry-After or else ours."""
    body = {"error": {"message": "warming up", "type": "server", "code": "warm"}}
    for status in (502, 503):
        site.upstream.then(replies.answer(body, status=status, retry_after="9"))
        response = site.ask("chat/completions")
        assert (response.status_code, response.json(), response.headers["retry-after"]) == (status, body, "9")
        site.upstream.then(replies.answer(body, status=status))
        assert site.ask("chat/completions").headers["retry-after"] == "1"


def test_the_paths_under_api_are_the_same_endpoints(site: Site) -> None:
    for path in ("chat/completions", "messages", "messages/count_tokens", "ocr", "audio/speech", "systemone", "models"):
        for method in ("GET", "POST"):
            answers = [
                httpx.request(method, f"{site.web.url}{prefix}/v1/{path}", timeout=30) for prefix in ("", "/api")
            ]
            first, second = answers
            assert (first.status_code, first.headers.get("allow")) == (second.status_code, second.headers.get("allow"))
            told = [json.dumps(answer.json()).replace(answer.headers["x-request-id"], "") for answer in answers]
            assert told[0] == told[1]


def test_what_is_no_http_is_refused_in_plain_words(gateway: GatewayProcess) -> None:
    """It never reaches the application: no JSON, and no page either."""
    for raw in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/models HTTP/9.9\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", gateway.web.port), timeout=10) as client:
            client.sendall(raw)
            answer = client.recv(65536)
        assert b"<html" not in answer.lower()
        assert b" 400 " in answer.split(b"\r\n")[0] or answer == b""
