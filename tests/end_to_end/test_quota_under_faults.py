"""A team's points while things fail: nobody passes them by more than what was under way, nobody is locked out.

Each request sets aside exactly what it then uses, and a team's points are enough for so many of them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import pytest

from gateway.redis_gates import PAUSE_SECONDS
from tests.end_to_end.chaos import PRELUDE
from tests.end_to_end.odd_upstream import OddUpstream, odd_upstream
from tests.installation import Installation, WebProcess, installation
from tests.services import free_port, redis_server, wait_until

MODEL, INPUT_PPT, OUTPUT_PPT = "MiniCPM5-2B", 35_000, 70_000
OUTPUT_TOKENS = 1_000
ENOUGH_FOR = 40
REQUESTS, AT_ONCE = 100, 10


def body(kind: str) -> tuple[bytes, int]:
    """A request that is answered with as many tokens as are set aside for it, and what it costs."""
    for tokens in range(10, 500):
        asked = {"kind": kind, "prompt": tokens, "cached": 0, "completion": OUTPUT_TOKENS}
        message = {"role": "user", "content": json.dumps(asked)}
        request = {"model": MODEL, "max_tokens": OUTPUT_TOKENS, "stream": True, "messages": [message]}
        if len(text := json.dumps(request).encode()) // 4 == tokens:
            return text, tokens * INPUT_PPT + OUTPUT_TOKENS * OUTPUT_PPT
    raise AssertionError("no such request")


PLAIN, COST_PPT = body("plain")
# The upstream never ends it. What it sets aside is no more than the plain one's.
HANGING, HANGING_PPT = body("hangs")


class Redis:
    """One that can be taken away and come back empty."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port, self._running = folder, free_port(), ExitStack()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        self._running.enter_context(redis_server(self._folder, port=self._port))

    def stop(self) -> None:
        self._running.close()

    def restart(self) -> None:
        self.stop()
        self.start()


@pytest.fixture(scope="module")
def upstream() -> Iterator[OddUpstream]:
    with odd_upstream([MODEL]) as made:
        yield made


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    made = Redis(tmp_path_factory.mktemp("redis"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, upstream: OddUpstream, redis: Redis) -> Iterator[Installation]:
    variables = {"REDIS_URL": redis.url, "UPSTREAM_URL": upstream.url, "RATE_LIMIT_LEASE_SECONDS": "2"}
    with installation(tmp_path_factory.mktemp("quota"), **variables) as made:
        yield made


@pytest.fixture(scope="module")
def webs(installed: Installation) -> list[WebProcess]:
    return [installed.start_web(prelude=PRELUDE) for _ in range(2)]


@pytest.fixture
def team(installed: Installation) -> tuple[int, str]:
    """Id and key of a team of its own, once every process counts together with the others again."""
    time.sleep(PAUSE_SECONDS)
    code = (
        "import django; django.setup()\n"
        "from accounts.keys import issue_key\nfrom accounts.models import Team\n"
        f"team = Team.objects.create(name='t', time_zone='UTC', points_limit_ppt={ENOUGH_FOR * COST_PPT})\n"
        "print(team.pk, issue_key(team=team, created_by=None, name='k').secret)"
    )
    id, secret = installed.run_python(code).split()
    return int(id), secret


async def ask(client: httpx.AsyncClient, web: WebProcess, secret: str) -> bool:
    """Whether the request was let through and answered; the only refusal is that of the points."""
    headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
    answer = await client.post(f"{web.url}/v1/chat/completions", content=PLAIN, headers=headers, timeout=60)
    assert answer.status_code == 200 or answer.json()["error"]["code"] == "insufficient_quota", answer.text
    return answer.status_code == 200


def spend(webs: list[WebProcess], secret: str, *, hurt: Callable[[], None] | None = None, after: int = 0) -> int:
    """More requests than the points are enough for, many at once, from all processes; how many were let through."""

    async def run() -> int:
        answered = asked = 0
        async with httpx.AsyncClient() as client:

            async def work(number: int) -> None:
                nonlocal answered, asked
                while asked < REQUESTS:
                    asked += 1
                    is_answered = await ask(client, webs[number % len(webs)], secret)
                    answered += is_answered
                    if hurting and answered >= after:
                        hurting.pop()()

            hurting = [hurt] if hurt else []
            await asyncio.gather(*(work(number) for number in range(AT_ONCE)))
        return answered

    return asyncio.run(run())


def records(installed: Installation, team_id: int) -> dict[int, int]:
    rows = installed.query(
        f"select status, count(*) from billing_usagerecord where team_id = {team_id} group by status"
    )
    return dict(rows)


def test_processes_share_the_points_to_the_last_one(webs: list[WebProcess], team: tuple[int, str]) -> None:
    assert spend(webs, team[1]) == ENOUGH_FOR


def test_an_emptied_redis_costs_no_more_than_what_was_under_way(
    webs: list[WebProcess], team: tuple[int, str], redis: Redis
) -> None:
    answered = spend(webs, team[1], hurt=redis.restart, after=ENOUGH_FOR * 3 // 4)
    assert ENOUGH_FOR - AT_ONCE <= answered <= ENOUGH_FOR + AT_ONCE


def test_without_redis_each_process_has_what_was_left(
    webs: list[WebProcess], team: tuple[int, str], redis: Redis
) -> None:
    spent = ENOUGH_FOR * 3 // 4
    try:
        answered = spend(webs, team[1], hurt=redis.stop, after=spent)
    finally:
        redis.start()
    assert answered <= spent + len(webs) * (ENOUGH_FOR - spent) + AT_ONCE
    # With Redis back, what was spent without it counts.
    assert spend(webs, team[1]) <= AT_ONCE


def test_a_killed_process_leaves_its_team_the_points_it_had_set_aside(
    installed: Installation, webs: list[WebProcess], team: tuple[int, str]
) -> None:
    team_id, secret = team
    doomed = installed.start_web(prelude=PRELUDE)

    async def killed_with_everything_set_aside() -> None:
        headers = {"authorization": f"Bearer {secret}", "content-type": "application/json"}
        limits = httpx.Limits(max_connections=None)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(limits=limits, timeout=60))
            for _ in range(ENOUGH_FOR):
                request = client.stream("POST", f"{doomed.url}/v1/chat/completions", content=HANGING, headers=headers)
                assert (await stack.enter_async_context(request)).status_code == 200
            assert not await ask(client, webs[0], secret)
            doomed.process.kill()

    def has_points() -> bool:
        async def run() -> bool:
            async with httpx.AsyncClient() as client:
                return await ask(client, webs[0], secret)

        return asyncio.run(run())

    assert HANGING_PPT == COST_PPT
    asyncio.run(killed_with_everything_set_aside())
    wait_until(has_points, what="the points free again")
    # One is spent by now; what the kill cut is recorded, and costs nothing.
    assert spend(webs, secret) == ENOUGH_FOR - 1
    found = {0: ENOUGH_FOR, 200: ENOUGH_FOR}
    wait_until(lambda: records(installed, team_id) == found, what="the records of all")
