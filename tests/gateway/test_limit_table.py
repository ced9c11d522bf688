"""Each limit of the contract: what it refuses with, in both dialects, when to come again, and that the next call of
one's own may pass again afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import httpx
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, completion, hello
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import USER
from tests.installation import Installation, WebProcess

NARROW = "MiniCPM5-2B"
ZONE = ZoneInfo("Asia/Shanghai")
KEYS = """
import json, django; django.setup()
from accounts.keys import KeyTerms, issue_key
from accounts.models import Team
slow = Team.objects.create(name="Slow", time_zone="Asia/Shanghai", rpm_limit=1)
team = Team.objects.create(name="Quick", time_zone="Asia/Shanghai")
terms = {"one a minute": {"rpm_limit": 1}, "one at once": {"concurrency_limit": 1}, "poor": {"points_limit_ppt": 1},
         "a": {}, "b": {}, "counted": {"rpm_limit": 10}}
make = lambda name, team, **terms: issue_key(team=team, created_by=None, name=name, terms=KeyTerms(**terms)).secret
print(json.dumps({name: make(name, team, **own) for name, own in terms.items()} | {"slow team": make("s", slow)}))
"""


class Site(NamedTuple):
    """`narrow` has one slot for the process, `wide` one for the site. Both believe X-Forwarded-For."""

    narrow: WebProcess
    wide: WebProcess
    keys: dict[str, str]
    upstream: FakeUpstream


@pytest.fixture(scope="module")
def processes(
    gateway_installation: Installation, upstream_server: FakeUpstream
) -> Iterator[tuple[WebProcess, WebProcess, dict[str, str]]]:
    file = gateway_installation.folder / "narrow.toml"
    file.write_text(
        f'[[upstream]]\nname = "wide"\nbase_url = "{upstream_server.url}"\nmodels = ["{MODEL}"]\n'
        f'[[upstream]]\nname = "narrow"\nbase_url = "{upstream_server.url}"\nmodels = ["{NARROW}"]\n'
        "max_concurrency = 1\n"
    )
    own = {"UPSTREAMS_FILE": str(file), "RATE_LIMIT_IP_RPM": "2", "TRUSTED_PROXIES": "127.0.0.0/8"}
    narrow = gateway_installation.start_web(environment=own | {"RATE_LIMIT_PROCESS_CONCURRENCY": "1"})
    wide = gateway_installation.start_web(environment=own | {"RATE_LIMIT_SITE_CONCURRENCY": "1"})
    yield narrow, wide, json.loads(gateway_installation.run_python(KEYS))
    for web in (narrow, wide):
        web.process.terminate()
        web.process.wait(20)


@pytest.fixture
def site(processes: tuple[WebProcess, WebProcess, dict[str, str]], upstream: FakeUpstream) -> Site:
    return Site(*processes, upstream)


addresses = iter(range(1, 250))


def ask(
    web: WebProcess, key: str, *, path: str = "chat/completions", address: str = "", **fields: Any
) -> httpx.Response:
    """From an address that nobody else calls from, where none is given."""
    body = {"model": MODEL, "messages": [USER], "max_tokens": 9} | fields
    headers = {"authorization": f"Bearer {key}", "x-forwarded-for": address or f"192.0.2.{next(addresses)}"}
    return httpx.post(f"{web.url}/v1/{path}", json=body, headers=headers, timeout=30)


@contextmanager
def open_stream(web: WebProcess, site: Site, key: str, model: str) -> Iterator[None]:
    """A stream that is on its way as long as the context lasts, and over when it has ended."""
    gate = site.upstream.gate()
    site.upstream.then(replies.paused_stream(gate, hello()[:1], [*hello()[1:], replies.DONE]))
    body = {"model": model, "messages": [USER], "stream": True}
    headers = {"authorization": f"Bearer {key}", "x-forwarded-for": f"192.0.2.{next(addresses)}"}
    url = f"{web.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=30) as response:
        assert response.status_code == 200
        yield
        gate.open()
        assert response.read().endswith(b"data: [DONE]\n\n")


type Provoke = Callable[[Site, ExitStack], tuple[WebProcess, str, dict[str, Any]]]


def one_a_minute(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    site.upstream.then(replies.answer(completion()))
    assert ask(site.narrow, site.keys["one a minute"]).status_code == 200
    return site.narrow, site.keys["one a minute"], {}


def an_address_too_often(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    site.upstream.then(replies.answer(completion()), replies.answer(completion()))
    for key in "ab":
        assert ask(site.narrow, site.keys[key], address="198.51.100.7").status_code == 200
    return site.narrow, site.keys["a"], {"address": "198.51.100.7"}


def a_team_too_often(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    site.upstream.then(replies.answer(completion()))
    assert ask(site.narrow, site.keys["slow team"]).status_code == 200
    return site.narrow, site.keys["slow team"], {}


def a_key_busy(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    stack.enter_context(open_stream(site.narrow, site, site.keys["one at once"], MODEL))
    return site.narrow, site.keys["one at once"], {}


def a_model_busy(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    stack.enter_context(open_stream(site.narrow, site, site.keys["a"], NARROW))
    return site.narrow, site.keys["b"], {"model": NARROW}


def a_process_busy(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    stack.enter_context(open_stream(site.narrow, site, site.keys["a"], MODEL))
    return site.narrow, site.keys["b"], {}


def the_site_busy(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    stack.enter_context(open_stream(site.wide, site, site.keys["a"], MODEL))
    return site.wide, site.keys["b"], {}


def no_points(site: Site, stack: ExitStack) -> tuple[WebProcess, str, dict[str, Any]]:
    return site.narrow, site.keys["poor"], {}


WITHIN_A_MINUTE, AT_ONCE, AT_MIDNIGHT = "seconds of the window", "1", "seconds of the day"
ROWS: list[tuple[Provoke, str, str]] = [
    (one_a_minute, "token_rate_limit_exceeded", WITHIN_A_MINUTE),
    (an_address_too_often, "ip_rate_limit_exceeded", WITHIN_A_MINUTE),
    (a_team_too_often, "rate_limit_exceeded", WITHIN_A_MINUTE),
    (a_key_busy, "token_concurrency_rate_limit_exceeded", AT_ONCE),
    (a_model_busy, "model_concurrency_rate_limit_exceeded", AT_ONCE),
    (a_process_busy, "process_concurrency_rate_limit_exceeded", AT_ONCE),
    (the_site_busy, "global_concurrency_rate_limit_exceeded", AT_ONCE),
    (no_points, "insufficient_quota", AT_MIDNIGHT),
]


@pytest.mark.parametrize(("provoke", "code", "retry_after"), ROWS, ids=[code for _, code, _ in ROWS])
def test_a_limit_refuses_by_its_name_and_says_when(site: Site, provoke: Provoke, code: str, retry_after: str) -> None:
    with ExitStack() as stack:
        web, key, fields = provoke(site, stack)
        answers = [ask(web, key, path=path, **fields) for path in ("chat/completions", "messages")]
    for answer in answers:
        assert answer.status_code == 429
        assert_due(answer.headers["retry-after"], retry_after)
    openai, anthropic = (answer.json() for answer in answers)
    assert (openai["error"]["type"], openai["error"]["code"]) == ("rate_limit_error", code)
    assert (anthropic["type"], anthropic["error"]["type"]) == ("error", "rate_limit_error")
    assert anthropic["error"]["message"][:12] == openai["error"]["message"][:12]


def assert_due(seconds: str, kind: str) -> None:
    if kind == WITHIN_A_MINUTE:
        assert 50 <= int(seconds) <= 60
    elif kind == AT_ONCE:
        assert seconds == "1"
    else:
        now = datetime.now(UTC).astimezone(ZONE)
        midnight = datetime(now.year, now.month, now.day, tzinfo=ZONE) + timedelta(days=1)
        left = (midnight - now).total_seconds()
        assert abs((int(seconds) - left + 43_200) % 86_400 - 43_200) < 10


@pytest.mark.parametrize("provoke", [a_key_busy, a_model_busy, a_process_busy, the_site_busy])
def test_a_slot_is_free_when_the_stream_has_ended(site: Site, provoke: Provoke) -> None:
    with ExitStack() as stack:
        web, key, fields = provoke(site, stack)
        assert ask(web, key, **fields).status_code == 429
    site.upstream.then(replies.answer(completion()))
    assert ask(web, key, **fields).status_code == 200


def test_every_success_says_what_is_left_of_the_minute(site: Site) -> None:
    """Also where no model is used, and nothing is said of points."""
    headers = {"authorization": f"Bearer {site.keys['counted']}"}
    body = {"model": MODEL, "messages": [USER]}
    calls = [("GET", "/v1/models", None), ("GET", f"/v1/models/{MODEL}", None), ("GET", "/api/me", None),
             ("GET", "/api/profile/model-usage", None), ("GET", "/api/usage?format=csv", None),
             ("POST", "/v1/messages/count_tokens", body)]  # fmt: skip
    for left, (method, path, sent) in zip(range(9, 0, -1), calls, strict=False):
        own = headers | {"x-forwarded-for": f"192.0.2.{next(addresses)}"}
        began = time.time()
        answer = httpx.request(method, site.wide.url + path, json=sent, headers=own, timeout=30)
        assert answer.status_code == 200, path
        told = {name: value for name, value in answer.headers.items() if name.startswith("x-ratelimit")}
        reset = int(told.pop("x-ratelimit-reset"))
        assert told == {"x-ratelimit-limit-user-rpm": "10", "x-ratelimit-remaining-user-rpm": str(left)}, path
        assert began < reset <= time.time() + 60


def test_lists_of_models_take_no_slot_and_count_as_requests(site: Site) -> None:
    headers = {"x-forwarded-for": "198.51.100.8"}
    own = {"authorization": f"Bearer {site.keys['b']}"}
    with open_stream(site.narrow, site, site.keys["a"], MODEL):
        listed = [httpx.get(f"{site.narrow.url}/v1/models", headers=headers | own, timeout=30) for _ in range(3)]
    assert [answer.status_code for answer in listed] == [200, 200, 429]
    assert listed[-1].json()["error"]["code"] == "ip_rate_limit_exceeded"
