"""Every path of the API, walked as a stranger, as each role and as another team's owner, against the rights' table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from accounts.models import Role
from accounts.rights import RIGHTS, Right
from gateway import account_api, app
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import GatewayProcess

PUBLIC, KEY_ONLY = "public", "a key"
MODEL = "/v1/models/DeepSeek-V4-Flash"
# What each path takes: nothing, a right in the team (a key has all of them that are of use to it), or a key itself.
NEEDED: dict[tuple[str, str], str | Right] = {
    ("POST", "/v1/chat/completions"): Right.USE_MODELS,
    ("POST", "/v1/messages"): Right.USE_MODELS,
    ("POST", "/v1/messages/count_tokens"): Right.USE_MODELS,
    ("POST", "/v1/ocr"): Right.USE_MODELS,
    ("POST", "/v1/audio/speech"): Right.USE_MODELS,
    ("POST", "/v1/systemone"): Right.USE_MODELS,
    ("GET", "/v1/models"): Right.READ,
    ("GET", "/v1/models/{id}"): Right.READ,
    ("GET", "/v1/openapi.json"): PUBLIC,
    ("GET", "/api/me"): Right.READ,
    ("GET", "/api/profile/model-usage"): Right.READ,
    ("GET", "/api/usage"): Right.READ,
    ("POST", "/api/profile/api-token"): KEY_ONLY,
}
TOKEN = "t" * 32
BAD = {"a wrong key": "rc-" + "0" * 48, "no key": "rc-nothing"}

MAKE = """
import json
import django; django.setup()
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from accounts.audit import SYSTEM
from accounts.keys import issue_key, revoke_key
from accounts.models import Membership, Role, Team, User
from gateway.endpoints import register_endpoint

def session(user, team):
    store = SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = "allauth.account.auth_backends.AuthenticationBackend"
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store["team_id"] = team.pk
    store.create()
    return store.session_key

team, owner = Team.objects.get(pk=1), User.objects.get(pk=1)
sessions = {}
for role in Role:
    user = User.objects.create_user(f"walker-{role}@example.com")
    Membership.objects.create(team=team, user=user, role=role)
    sessions[role] = session(user, team)
neighbour = User.objects.create_user("neighbour@example.com")
elsewhere = neighbour.personal_team
revoked = issue_key(team=team, created_by=owner, name="revoked")
revoke_key(key=revoked.key)
register_endpoint(
    team=team, created_by=owner, slug="walked", name="walked", base_url="http://127.0.0.1:9/v1", kind="vllm",
    api_key="", actor=SYSTEM,
)
print(json.dumps({
    "sessions": sessions,
    "revoked": revoked.secret,
    "neighbour": session(neighbour, elsewhere),
    "neighbour's key": issue_key(team=elsewhere, created_by=neighbour, name="theirs").secret,
}))
"""


class Caller(NamedTuple):
    headers: dict[str, str]
    rights: frozenset[Right]
    has_key: bool = False


def of_key(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def of_session(session: str) -> dict[str, str]:
    return {"cookie": f"tf_session={session}; tf_csrf={TOKEN}", "x-csrftoken": TOKEN}


@pytest.fixture(scope="module")
def made(gateway_process: GatewayProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gateway_process.installation.run_python(MAKE))
    return found


@pytest.fixture(scope="module")
def callers(made: dict[str, Any], gateway_process: GatewayProcess) -> dict[str, Caller]:
    """Those who are somebody."""
    everything = RIGHTS[Role.OWNER]
    of_roles = {role.value: Caller(of_session(made["sessions"][role]), RIGHTS[role]) for role in Role}
    return of_roles | {
        "the team's key": Caller(of_key(gateway_process.secret), everything, has_key=True),
        "another team's owner": Caller(of_session(made["neighbour"]), everything),
        "another team's key": Caller(of_key(made["neighbour's key"]), everything, has_key=True),
    }


@pytest.fixture
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=30, trust_env=False) as client:
        yield client


# The models' API is in two places.
PATHS = [*NEEDED, *((method, f"/api{path}") for method, path in NEEDED if path.startswith("/v1/"))]


class Path(NamedTuple):
    method: str
    address: str
    needed: str | Right
    http: httpx.Client

    def ask(self, headers: dict[str, str]) -> int:
        """The status of an answer to a request that asks for no model and, by a key, for no rotation."""
        body = {"grace_seconds": -1} if "authorization" in headers else {}
        url = self.address.replace("/v1/models/{id}", MODEL)
        return self.http.request(
            self.method, url, headers=headers, json=body if self.method == "POST" else None
        ).status_code


@pytest.fixture(params=PATHS, ids=" ".join)
def path(request: pytest.FixtureRequest, http: httpx.Client) -> Path:
    method, address = request.param
    return Path(method, address, NEEDED[method, address.replace("/api/v1/", "/v1/")], http)


def test_every_path_is_in_the_table() -> None:
    models = {(method, f"/v1/{name}") for name, methods in app.ROUTES.items() for method in methods}
    model = {(method, "/v1/models/{id}") for method in app.MODEL_ROUTE}
    account = {(method, path) for path, methods in account_api.ROUTES.items() for method in methods}
    assert models | model | account == set(NEEDED)
    assert app.PREFIXES == ("/v1/", "/api/", "/spaces/")


def test_strangers_get_no_further_than_the_public_paths(path: Path, made: dict[str, Any]) -> None:
    strangers = [
        {}, *({"authorization": f"Bearer {secret}"} for secret in BAD.values()), {"x-api-key": BAD["a wrong key"]},
        of_key(made["revoked"]), of_session("x" * 32), {"authorization": "Basic b3duZXI6"},
    ]  # fmt: skip
    assert {path.ask(headers) for headers in strangers} == {200 if path.needed == PUBLIC else 401}


def test_each_caller_passes_where_the_table_says(path: Path, callers: dict[str, Caller]) -> None:
    def allowed(caller: Caller) -> bool:
        return path.needed == PUBLIC or path.needed in caller.rights or (path.needed == KEY_ONLY and caller.has_key)

    # 400: let in, and told that the request is none.
    passed = 400 if path.method == "POST" else 200
    expected = {name: passed if allowed(caller) else 403 for name, caller in callers.items()}
    assert {name: path.ask(caller.headers) for name, caller in callers.items()} == expected


def test_a_session_without_its_token_passes_nowhere_but_to_read(path: Path, callers: dict[str, Caller]) -> None:
    for name in (*Role.values, "another team's owner"):
        status = path.ask(callers[name].headers | {"x-csrftoken": ""})
        assert status == (200 if path.method == "GET" else 403), name


def test_a_teams_own_server_is_behind_the_same_rights(http: httpx.Client, callers: dict[str, Caller]) -> None:
    """503: let in, where no server may stand. To another team it is forbidden, as the API's description says."""
    foreign = {"another team's owner", "another team's key"}
    for method, needed in (("GET", Right.READ), ("POST", Right.USE_MODELS), ("DELETE", Right.USE_MODELS)):
        for name, caller in callers.items():
            status = http.request(method, "/spaces/walked/v1/models", headers=caller.headers).status_code
            assert status == (403 if name in foreign or needed not in caller.rights else 503), (method, name)
            assert http.get("/spaces/nothing/v1/models", headers=caller.headers).status_code == 404
    for headers in ({}, of_key(BAD["a wrong key"]), of_session("x" * 32)):
        assert {http.get(f"/spaces/{slug}/v1/models", headers=headers).status_code for slug in ("walked", "x")} == {401}


def test_another_teams_usage_is_not_in_ones_own(
    gateway: GatewayProcess, upstream: FakeUpstream, http: httpx.Client, callers: dict[str, Caller]
) -> None:
    upstream.then(replies.answer(replies.completion()))
    gateway.record(gateway.ask())

    def of(name: str, path: str) -> Any:
        return http.get(path, headers=callers[name].headers).json()

    for name in ("the team's key", *Role.values):
        assert of(name, "/api/me")["team"]["id"] == 1
        assert of(name, "/api/usage")["unrated"] > 0
    for name in ("another team's owner", "another team's key"):
        assert of(name, "/api/me")["team"]["id"] != 1
        assert of(name, "/api/usage")["unrated"] == of(name, "/api/profile/model-usage")["unrated"] == 0
        assert of(name, "/api/usage?key=1")["total"]["requests"] == 0
