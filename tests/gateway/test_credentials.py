"""Who may call: keys in both headers, sessions with their CSRF token, and nobody else, from the very next request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.credentials import BAD_KEY, presented
from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, completion
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import USER, GatewayProcess

OK = replies.answer(completion())
UNKNOWN = "rc-" + "0" * 48

MAKE_KEYS_AND_SESSION = """
import json
from datetime import timedelta
import django; django.setup()
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone
from accounts.keys import issue_key
from accounts.models import Team, User
team, owner = Team.objects.get(pk=1), User.objects.get(pk=1)
def key(name, **fields):
    issued = issue_key(team=team, created_by=owner, name=name, **fields)
    return [issued.key.pk, issued.secret]
session = SessionStore()
session[SESSION_KEY] = str(owner.pk)
session[BACKEND_SESSION_KEY] = "allauth.account.auth_backends.AuthenticationBackend"
session[HASH_SESSION_KEY] = owner.get_session_auth_hash()
session.create()
now = timezone.now()
print(json.dumps({
    "session": session.session_key,
    "to revoke": key("to revoke"),
    "expired": key("expired", expires_at=now - timedelta(seconds=1)),
    "lasting": key("lasting", expires_at=now + timedelta(days=1)),
}))
"""


@pytest.fixture(scope="module")
def made(gateway_process: GatewayProcess) -> dict[str, Any]:
    """Keys as [id, secret] by name, and the session of the owner."""
    found: dict[str, Any] = json.loads(gateway_process.installation.run_python(MAKE_KEYS_AND_SESSION))
    return found


@pytest.fixture
def stranger(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    """A client that sends nothing of itself."""
    with httpx.Client(base_url=gateway.url, timeout=30, trust_env=False) as http:
        yield http


def ask(http: httpx.Client, **headers: str) -> httpx.Response:
    return http.post("/v1/chat/completions", json={"model": MODEL, "messages": [USER]}, headers=headers)


def refusal_of(response: httpx.Response) -> str:
    """The message of a 401 in the shape that clients expect."""
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert len(response.headers["x-request-id"]) == 36
    error = response.json()["error"]
    message: str = error.pop("message")
    assert error == {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
    return message


# -- what a request presents -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([], None),
        ([(b"authorization", b"Bearer rc-1")], b"rc-1"),
        ([(b"authorization", b"bearer   rc-1 ")], b"rc-1"),
        ([(b"x-api-key", b" rc-2 ")], b"rc-2"),
        ([(b"x-api-key", b"rc-2"), (b"authorization", b"Bearer rc-1")], b"rc-1"),
        ([(b"authorization", b"Bearer rc-1"), (b"authorization", b"Bearer rc-3")], b"rc-1"),
        # A header that is there and no key does not let the other one through.
        ([(b"authorization", b"Basic cmMtMQ=="), (b"x-api-key", b"rc-2")], b""),
        ([(b"authorization", b""), (b"x-api-key", b"rc-2")], b""),
        ([(b"authorization", b"rc-1")], b""),
        ([(b"authorization", b"Bearer \xff\xe9")], b"\xff\xe9"),
        ([(b"cookie", b"a=b; tf_session=x")], None),
    ],
)
def test_what_a_request_presents(headers: list[tuple[bytes, bytes]], secret: bytes | None) -> None:
    # Request makes its mapping so: of a header that was sent twice the first counts.
    assert presented(dict(reversed(headers))) == secret


# -- keys --------------------------------------------------------------------------------------------


def test_a_request_without_credentials_is_told_how_to_send_them(stranger: httpx.Client) -> None:
    assert "Authorization: Bearer rc-" in refusal_of(ask(stranger))


@pytest.mark.parametrize(
    "secret",
    [
        "", "rc-", "rc-123", "sk-" + "0" * 48, "rc-" + "0" * 47, "rc-" + "0" * 49, "RC-" + "0" * 48, "rc-" + "A" * 48,
        "rc-" + "g" * 48, "rc-" + "0" * 47 + "\u0660", "' OR 1=1 --", UNKNOWN,
    ],
)  # fmt: skip
def test_anything_but_a_key_is_refused_in_one_way(stranger: httpx.Client, secret: str) -> None:
    for name, value in (("authorization", f"bearer {secret}".strip()), ("x-api-key", secret)):
        response = stranger.post("/v1/chat/completions", headers=[(name.encode(), value.encode())], json={})
        assert refusal_of(response) == BAD_KEY
        assert not secret or secret not in response.text


def test_a_key_is_taken_in_either_header(
    gateway: GatewayProcess, upstream: FakeUpstream, stranger: httpx.Client
) -> None:
    upstream.then(OK, OK, OK)
    assert ask(stranger, authorization=f"Bearer {gateway.secret}").status_code == 200
    assert ask(stranger, **{"x-api-key": gateway.secret}).status_code == 200
    assert ask(stranger, authorization=f"Bearer {gateway.secret}", **{"x-api-key": UNKNOWN}).status_code == 200
    refused = ask(stranger, authorization=f"Bearer {UNKNOWN}", **{"x-api-key": gateway.secret})
    assert refusal_of(refused) == BAD_KEY


def test_keys_end_when_they_say(made: dict[str, Any], upstream: FakeUpstream, stranger: httpx.Client) -> None:
    upstream.then(OK)
    assert ask(stranger, authorization=f"Bearer {made['lasting'][1]}").status_code == 200
    assert refusal_of(ask(stranger, authorization=f"Bearer {made['expired'][1]}")) == BAD_KEY


def test_a_key_revoked_in_another_process_is_refused_at_once(
    gateway: GatewayProcess, made: dict[str, Any], upstream: FakeUpstream, stranger: httpx.Client
) -> None:
    key_id, secret = made["to revoke"]
    upstream.then(OK, OK, OK)
    for _ in range(2):
        assert ask(stranger, authorization=f"Bearer {secret}").status_code == 200
    gateway.installation.manage("revoke_key", str(key_id))
    assert refusal_of(ask(stranger, authorization=f"Bearer {secret}")) == BAD_KEY
    assert gateway.ask().status_code == 200


def test_refused_requests_leave_no_record(
    gateway: GatewayProcess, upstream: FakeUpstream, stranger: httpx.Client
) -> None:
    upstream.then(OK, OK)
    first = gateway.ask()
    ask(stranger)
    ask(stranger, authorization=f"Bearer {UNKNOWN}")
    last = gateway.ask()
    gateway.record(last)
    assert gateway.records_since(first) == [last.headers["x-request-id"].replace("-", "")]


# -- the browser's session ---------------------------------------------------------------------------


def test_a_session_calls_with_its_csrf_token_only(
    gateway: GatewayProcess, made: dict[str, Any], upstream: FakeUpstream, stranger: httpx.Client
) -> None:
    upstream.then(OK)
    token = "t" * 32
    cookies = f"tf_session={made['session']}; tf_csrf={token}"
    for wrong in ({}, {"x-csrftoken": "u" * 32}, {"x-csrftoken": ""}):
        response = ask(stranger, cookie=cookies, **wrong)
        assert (response.status_code, response.json()["error"]["code"]) == (403, "permission_denied")
    assert upstream.received == []
    response = ask(stranger, cookie=cookies, **{"x-csrftoken": token})
    assert response.status_code == 200
    record = gateway.record(response)
    assert [record[name] for name in ("team_id", "key_id", "member_id", "source")] == [1, 0, 1, "api"]


def test_a_session_reads_without_a_token(made: dict[str, Any], stranger: httpx.Client) -> None:
    assert stranger.get("/v1/models", headers={"cookie": f"tf_session={made['session']}"}).status_code == 200


def test_a_session_that_nobody_has_is_no_credential(stranger: httpx.Client) -> None:
    assert "Missing credentials" in refusal_of(ask(stranger, cookie="tf_session=" + "x" * 32))


def test_a_bad_key_is_not_made_good_by_a_session(made: dict[str, Any], stranger: httpx.Client) -> None:
    token = "t" * 32
    headers = {"cookie": f"tf_session={made['session']}; tf_csrf={token}", "x-csrftoken": token}
    assert refusal_of(ask(stranger, authorization=f"Bearer {UNKNOWN}", **headers)) == BAD_KEY


def test_no_secret_is_ever_logged(gateway: GatewayProcess, stranger: httpx.Client) -> None:
    ask(stranger, authorization=f"Bearer {UNKNOWN}")
    log = (gateway.installation.folder / "web.log").read_text()
    assert UNKNOWN not in log
    assert gateway.secret not in log
    assert "sk-upstream-secret" not in log
