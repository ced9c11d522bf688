"""What is done to a key binds the very next request in every web process, with Redis and without it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import httpx
import pytest

from tests.installation import Installation, WebProcess, installation
from tests.services import redis_server, wait_until

PROCESSES = 3
# It knows no developer role, and says so with 422.
MODEL = "MiniCPM5-2B"


class Site:
    """Three web processes of one installation, and a browser signed in at the first."""

    def __init__(self, installed: Installation, webs: list[WebProcess], redis: ExitStack) -> None:
        self.installed = installed
        self.webs = webs
        self.stop_redis = redis.close
        self.browser = httpx.Client(base_url=webs[0].url, timeout=20)
        self.browser.get("/accounts/login/")
        answer = self.post("/accounts/login/", login=installed.email, password=installed.password)
        assert answer.status_code == 302

    def post(self, path: str, **form: str) -> httpx.Response:
        token = self.browser.cookies["tf_csrf"]
        return self.browser.post(
            path, data={**form, "csrfmiddlewaretoken": token}, headers={"Origin": self.webs[0].url}
        )

    def new_key(self, **terms: str) -> tuple[str, str]:
        """Its address and its secret."""
        page = self.post("/keys/new/", name="batch", **terms).text
        (secret,) = set(re.findall(r"rc-[0-9a-f]{48}", page))
        newest = max(int(number) for number in re.findall(r"/keys/(\d+)/", self.browser.get("/keys/").text))
        return f"/keys/{newest}/", secret

    def rotated_by_api(self, secret: str, *, grace_seconds: int) -> dict[str, str]:
        answer = httpx.post(
            f"{self.webs[0].url}/api/profile/api-token",
            json={"grace_seconds": grace_seconds},
            headers={"Authorization": f"Bearer {secret}"},
            timeout=20,
        )
        assert answer.status_code == 200
        made: dict[str, str] = answer.json()
        return made

    def statuses(self, secret: str, *, role: str = "user") -> list[int]:
        """What each process answers to the next request with this secret."""
        return [chat(web, secret, role=role) for web in self.webs]


def chat(web: WebProcess, secret: str, *, role: str = "user", client: httpx.Client | None = None) -> int:
    request = {"model": MODEL, "max_tokens": 1, "messages": [{"role": role, "content": "Hi"}]}
    headers = {"Authorization": f"Bearer {secret}"}
    post = client.post if client else httpx.post
    return post(f"{web.url}/v1/chat/completions", json=request, headers=headers, timeout=20).status_code


def models(web: WebProcess, secret: str, *, client: httpx.Client) -> int:
    return client.get(f"{web.url}/v1/models", headers={"Authorization": f"Bearer {secret}"}).status_code


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("revocation")
    with ExitStack() as stack, ExitStack() as redis:
        url = redis.enter_context(redis_server(folder))
        limits = {"RATE_LIMIT_KEY_RPM": "0", "RATE_LIMIT_IP_RPM": "0"}
        installed = stack.enter_context(installation(folder, REDIS_URL=url, **limits))
        installed.environment["DEMO_URL"] = installed.start_demo("--pace-seconds", "0")
        webs = [installed.start_web() for _ in range(PROCESSES)]
        site = Site(installed, webs, redis)
        stack.callback(site.browser.close)
        yield site


def test_a_revoked_key_is_refused_at_the_next_request_in_each_process(site: Site) -> None:
    address, secret = site.new_key()
    assert site.statuses(secret) == [200, 200, 200]
    assert site.post(f"{address}revoke/").status_code == 302
    assert site.statuses(secret) == [401, 401, 401]


def test_disabling_and_enabling_bind_at_once(site: Site) -> None:
    address, secret = site.new_key()
    assert site.statuses(secret) == [200, 200, 200]
    site.post(f"{address}disable/")
    assert site.statuses(secret) == [401, 401, 401]
    site.post(f"{address}enable/")
    assert site.statuses(secret) == [200, 200, 200]


def test_rotation_binds_at_once_and_keeps_the_old_secret_in_its_grace(site: Site) -> None:
    address, first = site.new_key()
    (second,) = set(re.findall(r"rc-[0-9a-f]{48}", site.post(f"{address}rotate/", grace="3600").text))
    assert site.statuses(first) == site.statuses(second) == [200, 200, 200]
    (third,) = set(re.findall(r"rc-[0-9a-f]{48}", site.post(f"{address}rotate/", grace="0").text))
    assert [site.statuses(secret) for secret in (first, second, third)] == [[401] * 3, [401] * 3, [200] * 3]


def test_the_old_secret_is_good_until_its_grace_ends_and_no_moment_longer_in_each_process(site: Site) -> None:
    """By the clock alone: nobody does anything to the key when the moment comes, and every process knows it well."""
    _, first = site.new_key()
    new = site.rotated_by_api(first, grace_seconds=5)
    until = datetime.fromisoformat(new["previous_until"]).timestamp()
    seen: list[tuple[float, list[int], float]] = []

    def refused_everywhere() -> bool:
        begun, statuses, ended = time.time(), site.statuses(first), time.time()
        seen.append((begun, statuses, ended))
        return statuses == [401] * PROCESSES

    wait_until(refused_everywhere, what="the end of the grace")
    in_time = [statuses for _, statuses, ended in seen if ended < until]
    too_late = [statuses for begun, statuses, _ in seen if begun >= until]
    assert in_time
    assert in_time == [[200] * PROCESSES] * len(in_time)
    assert too_late == [[401] * PROCESSES] * len(too_late)
    assert site.statuses(new["api_key"]) == [200] * PROCESSES


def test_a_narrower_scope_binds_at_once(site: Site) -> None:
    address, secret = site.new_key()
    assert site.statuses(secret) == [200, 200, 200]
    site.post(f"{address}change/", name="batch", networks="192.0.2.0/24")
    assert site.statuses(secret) == [403, 403, 403]
    site.post(f"{address}change/", name="batch", networks="127.0.0.0/8")
    assert site.statuses(secret) == [200, 200, 200]


def test_another_limit_binds_at_once(site: Site) -> None:
    address, secret = site.new_key()
    assert site.statuses(secret) == [200, 200, 200]
    site.post(f"{address}change/", name="batch", rpm_limit="1")
    # Counted from then on, by all three together.
    assert site.statuses(secret) == [200, 429, 429]
    site.post(f"{address}change/", name="batch", rpm_limit="0")
    assert site.statuses(secret) == [200, 200, 200]


def test_what_is_wrong_with_a_request_is_told_by_the_terms_of_now(site: Site) -> None:
    address, secret = site.new_key()
    assert site.statuses(secret, role="developer") == [422, 422, 422]
    site.post(f"{address}change/", name="batch", portable="on")
    assert site.statuses(secret, role="developer") == [200, 200, 200]
    site.post(f"{address}change/", name="batch")
    assert site.statuses(secret, role="developer") == [422, 422, 422]
    assert site.statuses(secret, role="nobody") == [400, 400, 400]
    site.post(f"{address}revoke/")
    assert site.statuses(secret, role="nobody") == [401, 401, 401]


def test_a_change_of_another_key_changes_nothing(site: Site) -> None:
    _, secret = site.new_key(rpm_limit="6")
    other, _ = site.new_key()
    assert site.statuses(secret) == [200, 200, 200]
    site.post(f"{other}revoke/")
    # Nor is a request counted twice that finds the keys changed.
    assert site.statuses(secret) == [200, 200, 200]
    assert site.statuses(secret) == [429, 429, 429]


def refused_under_load(site: Site, *, answer: int) -> None:
    """Six clients call through all processes while a new key is revoked, which the page answers so."""
    address, secret = site.new_key()
    revoked = threading.Event()
    enough = [threading.Event() for _ in site.webs]
    wrong: list[int] = []

    def call(web: WebProcess, ask: Callable[..., int], warm: threading.Event) -> None:
        with httpx.Client(timeout=20) as client:
            for number in range(10_000):
                begun_after = revoked.is_set()
                status = ask(web, secret, client=client)
                if begun_after:
                    wrong.extend([status] if status != 401 else [])
                    return
                assert status in {200, 401}
                if number == 20:
                    warm.set()

    callers = [
        threading.Thread(target=call, args=(web, ask, warm))
        for web, warm in zip(site.webs, enough, strict=True)
        for ask in (chat, models)
    ]
    for caller in callers:
        caller.start()
    for warm in enough:
        assert warm.wait(60)
    assert site.post(f"{address}revoke/").status_code == answer
    revoked.set()
    for caller in callers:
        caller.join(60)
    assert wrong == []
    assert site.statuses(secret) == [401, 401, 401]


def test_under_load_of_three_processes_no_request_begun_after_the_answer_is_let_in(site: Site) -> None:
    refused_under_load(site, answer=302)


def test_without_redis_keys_are_read_from_the_database(site: Site) -> None:
    """From here on Redis is away: it does not come back."""
    address, secret = site.new_key()
    assert site.statuses(secret) == [200, 200, 200]
    site.stop_redis()
    assert site.statuses(secret) == [200, 200, 200]
    answer = site.post(f"{address}revoke/")
    assert (answer.status_code, "could not be told" in answer.text) == (503, True)
    assert site.statuses(secret) == [401, 401, 401]


def test_without_redis_and_under_load_no_request_begun_after_the_answer_is_let_in(site: Site) -> None:
    refused_under_load(site, answer=503)
