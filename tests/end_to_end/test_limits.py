"""Limits as clients meet them: exactly what is allowed is admitted, in one process and in three over one Redis."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream, Received, Wire
from tests.installation import Installation, WebProcess, installation
from tests.services import redis_server, wait_until

LIMITS = {
    "RATE_LIMIT_KEY_RPM": "30",
    "RATE_LIMIT_IP_RPM": "0",
    "RATE_LIMIT_KEY_CONCURRENCY": "8",
    "TEAM_POINTS_LIMIT": "10",
}
QUICK = "Hello [[tokens=3]]"
# Streams paced so that all of them overlap.
SLOW = "Hello [[tokens=25]] [[pace=0.1]]"
# A model whose server counts how many of its calls are open.
COUNTED = "counted"
HOLD_SECONDS = 0.1
LEASE_SECONDS = 2


class CountingUpstream(FakeUpstream):
    def __init__(self) -> None:
        super().__init__()
        self.open_calls = self.most_at_once = 0

    async def _reply(self, request: Received, wire: Wire) -> None:
        self.received.append(request)
        self.open_calls += 1
        self.most_at_once = max(self.most_at_once, self.open_calls)
        await asyncio.sleep(HOLD_SECONDS)
        # Before the end is on its way, for it may be there before this side goes on.
        self.open_calls -= 1
        await replies.answer(replies.completion(model=COUNTED))(request, wire)


@pytest.fixture(scope="module")
def counting() -> Iterator[CountingUpstream]:
    upstream = CountingUpstream()
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, counting: CountingUpstream) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("limits")
    with redis_server(folder) as url, installation(folder, REDIS_URL=url, **LIMITS) as made:
        demo = made.start_demo("--pace-seconds", "0")
        file = folder / "upstreams.toml"
        file.write_text(
            f'[[upstream]]\nname = "demo"\nkind = "demo"\nbase_url = "{demo}"\n'
            f'[[upstream]]\nname = "counting"\nbase_url = "{counting.url}"\nmodels = ["{COUNTED}"]\n'
        )
        made.environment["UPSTREAMS_FILE"] = str(file)
        yield made


@pytest.fixture(scope="module")
def three(installed: Installation) -> list[WebProcess]:
    return [installed.start_web() for _ in range(3)]


@pytest.fixture(scope="module")
def alone(installed: Installation) -> WebProcess:
    """A process that counts for itself, as without Redis."""
    return installed.start_web(environment={"REDIS_URL": ""})


@pytest.fixture
def make_key(installed: Installation) -> Any:
    def make(**terms: Any) -> str:
        code = (
            "import django; django.setup()\n"
            "from accounts.models import Team\nfrom accounts.keys import issue_key, KeyTerms\n"
            f"print(issue_key(team=Team.objects.get(), created_by=None, name='k', terms=KeyTerms(**{terms!r})).secret)"
        )
        return installed.run_python(code).strip()

    return make


def test_sixty_four_clients_get_exactly_thirty_a_minute(alone: WebProcess, make_key: Any) -> None:
    answers = _hammer([alone], make_key(concurrency_limit=0), count=64, prompt=QUICK)
    assert Counter(answer.status_code for answer in answers) == {200: 30, 429: 34}
    _all_refused_with(answers, "token_rate_limit_exceeded")


def test_three_processes_share_the_thirty(three: list[WebProcess], make_key: Any) -> None:
    answers = _hammer(three, make_key(concurrency_limit=0), count=64, prompt=QUICK)
    assert Counter(answer.status_code for answer in answers) == {200: 30, 429: 34}
    _all_refused_with(answers, "token_rate_limit_exceeded")


@pytest.mark.parametrize("processes", [1, 3])
def test_who_never_stops_asking_gets_thirty_and_never_more_than_eight_at_once(
    processes: int, alone: WebProcess, three: list[WebProcess], make_key: Any, counting: CountingUpstream
) -> None:
    counting.reset()
    counting.most_at_once = 0
    webs, secret = [alone] if processes == 1 else three, make_key()

    async def insist(client: httpx.AsyncClient, web: WebProcess) -> int:
        """How many answers this client got until the minute was used up."""
        answers = 0
        while True:
            answer = await client.post(**_request(web, secret, QUICK, model=COUNTED, stream=False))
            answers += answer.status_code == 200
            code = answer.json().get("error", {}).get("code")
            if code == "token_rate_limit_exceeded":
                return answers
            if code:
                assert code == "token_concurrency_rate_limit_exceeded"
                await asyncio.sleep(HOLD_SECONDS)

    async def all_of_them() -> list[int]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:
            return await asyncio.gather(*(insist(client, webs[number % len(webs)]) for number in range(64)))

    assert sum(asyncio.run(all_of_them())) == 30
    assert len(counting.received) == 30
    assert 1 < counting.most_at_once <= 8


def test_a_key_has_eight_at_once_and_a_refused_call_costs_nothing_else(alone: WebProcess, make_key: Any) -> None:
    answers = _hammer([alone], make_key(), count=20, prompt=SLOW, stream=True)
    assert Counter(answer.status_code for answer in answers) == {200: 8, 429: 12}
    _all_refused_with(answers, "token_concurrency_rate_limit_exceeded", retry_after="1")


def test_three_processes_share_the_eight(three: list[WebProcess], make_key: Any) -> None:
    answers = _hammer(three, make_key(), count=20, prompt=SLOW, stream=True)
    assert Counter(answer.status_code for answer in answers) == {200: 8, 429: 12}
    _all_refused_with(answers, "token_concurrency_rate_limit_exceeded", retry_after="1")


def test_a_key_of_its_own_terms_follows_them(alone: WebProcess, make_key: Any) -> None:
    secret = make_key(rpm_limit=2, models=["MiniCPM5-2B"], endpoints=["chat"])
    assert _ask(alone, secret, model="MiniCPM5-2B").headers["x-ratelimit-limit-user-rpm"] == "2"
    other = _ask(alone, secret, model="DeepSeek-V4-Flash")
    assert (other.status_code, other.json()["error"]["code"]) == (403, "permission_denied")
    listed = httpx.get(f"{alone.url}/v1/models", headers={"Authorization": f"Bearer {secret}"})
    assert (listed.status_code, listed.json()["error"]["code"]) == (403, "permission_denied")
    assert _ask(alone, secret, model="MiniCPM5-2B").headers["x-ratelimit-remaining-user-rpm"] == "0"
    assert _ask(alone, secret, model="MiniCPM5-2B").status_code == 429


def test_a_network_that_the_key_is_not_for_is_refused(alone: WebProcess, make_key: Any) -> None:
    answer = _ask(alone, make_key(networks=["10.0.0.0/8"]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied")
    assert _ask(alone, make_key(networks=["127.0.0.0/8"])).status_code == 200


def test_success_tells_what_is_left(alone: WebProcess, make_key: Any) -> None:
    headers = _ask(alone, make_key()).headers
    assert headers["x-ratelimit-limit-user-rpm"] == "30"
    assert headers["x-ratelimit-remaining-user-rpm"] == "29"
    assert headers["x-ratelimit-limit-user-daily-points"] == "10"
    used, left = (Decimal(headers[f"x-ratelimit-{name}-user-daily-points"]) for name in ("used", "remaining"))
    assert used + left == 10


def test_a_spent_budget_is_not_overrun_by_many_at_once(alone: WebProcess, make_key: Any) -> None:
    # Each sets aside 10 output tokens at 0.28 points a million and its prompt; twelve such fit, not one more.
    probe = _ask(alone, make_key(points_limit_ppt=1), max_tokens=10)
    needed = Decimal(probe.json()["error"]["message"].partition("up to ")[2].partition(",")[0])
    secret = make_key(points_limit_ppt=int(needed * 12 * 10**12), rpm_limit=0, concurrency_limit=0)
    answers = _hammer([alone], secret, count=40, prompt="Hello [[tokens=10]] [[pace=0.1]]", stream=True, max_tokens=10)
    admitted = sum(answer.status_code == 200 for answer in answers)
    # The prompts of the two differ by their directives: what is set aside is a little more than the probe's.
    assert 10 <= admitted <= 12
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert int(refused.headers["retry-after"]) > 0


def test_a_killed_process_frees_its_slots(installed: Installation, three: list[WebProcess], make_key: Any) -> None:
    doomed = installed.start_web(environment={"RATE_LIMIT_LEASE_SECONDS": str(LEASE_SECONDS)})
    secret = make_key(concurrency_limit=1, rpm_limit=0)

    async def killed_with_an_open_stream() -> None:
        async with httpx.AsyncClient() as client, client.stream("POST", **_request(doomed, secret, SLOW)) as response:
            assert response.status_code == 200
            doomed.process.kill()

    asyncio.run(killed_with_an_open_stream())
    assert _ask(three[0], secret).status_code == 429
    # Far less than the lease of those that killed nothing; the rest is for the machine.
    wait_until(lambda: _ask(three[0], secret).status_code == 200, what="a free slot", seconds=LEASE_SECONDS + 8)


def _request(web: WebProcess, secret: str, prompt: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": prompt}], "stream": True, **fields}
    headers = {"Authorization": f"Bearer {secret}"}
    return {"url": f"{web.url}/v1/chat/completions", "json": body, "headers": headers, "timeout": 60}


def _ask(web: WebProcess, secret: str, **fields: Any) -> httpx.Response:
    return httpx.post(**_request(web, secret, QUICK, stream=False, **fields))


def _hammer(webs: list[WebProcess], secret: str, *, count: int, prompt: str, **fields: Any) -> list[httpx.Response]:
    fields = {"stream": False, **fields}

    async def all_at_once() -> list[httpx.Response]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:
            requests = [_request(webs[number % len(webs)], secret, prompt, **fields) for number in range(count)]
            return await asyncio.gather(*(client.post(**request) for request in requests))

    return asyncio.run(all_at_once())


def _all_refused_with(answers: list[httpx.Response], code: str, *, retry_after: str = "") -> None:
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.json()["error"]["code"] for answer in refused} == {code}
    assert {answer.json()["error"]["type"] for answer in refused} == {"rate_limit_error"}
    if retry_after:
        assert {answer.headers["retry-after"] for answer in refused} == {retry_after}
    else:
        assert all(0 < int(answer.headers["retry-after"]) <= 60 for answer in refused)
    assert all("x-request-id" in answer.headers for answer in answers)


def test_the_address_limit_holds_for_each_address(installed: Installation, make_key: Any, tmp_path: Path) -> None:
    web = installed.start_web(
        environment={
            "REDIS_URL": "",
            "RATE_LIMIT_IP_RPM": "3",
            "TRUSTED_PROXIES": "127.0.0.0/8",
            "RATE_LIMIT_KEY_RPM": "0",
        }
    )
    secret = make_key()

    def ask_from(address: str) -> httpx.Response:
        request = _request(web, secret, QUICK, stream=False)
        request["headers"] |= {"X-Forwarded-For": f"6.6.6.6, {address}"}
        return httpx.post(**request)

    assert [ask_from("192.0.2.1").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert ask_from("192.0.2.2").status_code == 200
    assert ask_from("192.0.2.1").json()["error"]["code"] == "ip_rate_limit_exceeded"
