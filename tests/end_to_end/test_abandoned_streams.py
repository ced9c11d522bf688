"""A thousand streams left at random moments: nothing of them stays, in one process and with counters in Redis.

Looked at from outside where that is possible: connections at the model server, what is in flight in `/metrics`, the
key's slots and points in what the next call is told. Tasks and memory only the process itself knows.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import socket
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream, Received, Wire, fake_upstream
from tests.installation import Installation, WebProcess, installation
from tests.services import redis_server, wait_until

MODEL = "DeepSeek-V4-Flash"
PROMPT_PPT, OUTPUT_PPT = 140_000, 280_000
STREAMS, AT_ONCE, CHUNKS = 1_000, 40, 8
# The first streams make what any process keeps: pools, caches, the allocator's arenas.
WARM_UP = 300
# A stream that stayed would be dozens of objects; some connections of clients that reset them wait for a timer.
MAX_GROWTH = 2 * STREAMS
MAX_GROWTH_BYTES = 8 * 2**20
POINTS = 100 * 10**12
# On SIGUSR1 the process says what it holds.
PROBE = """
import asyncio, gc, json, os, signal
def tell(number, frame):
    from gateway.runtime import runtime
    gc.collect()
    connections = runtime().transport.open_connections
    tasks = [task.get_coro().__qualname__ for task in asyncio.all_tasks() if not task.done()]
    state = {"tasks": sorted(tasks), "open": len(connections), "busy": sum(not one.complete for one in connections)}
    state |= {"objects": len(gc.get_objects()), "bytes": int(open("/proc/self/statm").read().split()[1]) * 4096}
    with open(os.environ["STATE_FILE"] + ".new", "w") as file:
        json.dump(state, file)
    os.rename(os.environ["STATE_FILE"] + ".new", os.environ["STATE_FILE"])
signal.signal(signal.SIGUSR1, tell)
"""


class State(NamedTuple):
    tasks: list[str]
    open: int
    busy: int
    objects: int
    bytes: int


class Site(NamedTuple):
    installed: Installation
    web: WebProcess
    upstream: FakeUpstream
    secret: str

    @property
    def state(self) -> State:
        file = self.installed.folder / "state.json"
        file.unlink(missing_ok=True)
        self.web.process.send_signal(signal.SIGUSR1)
        wait_until(file.exists, what="the process telling its state")
        return State(**json.loads(file.read_text()))

    @property
    def in_flight(self) -> int:
        text = httpx.get(f"{self.web.url}/metrics", timeout=20).text
        return sum(
            int(float(count)) for count in re.findall(r"^tokenfactory_upstream_in_flight{.*} (\S+)$", text, re.M)
        )

    def ask(self) -> httpx.Response:
        self.upstream.then(replies.answer(replies.completion()))
        return httpx.post(f"{self.web.url}/v1/chat/completions", headers=self.headers, json=BODY, timeout=20)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.secret}"}


BODY = {"model": MODEL, "messages": [{"role": "user", "content": "A story"}]}
RAW_BODY = json.dumps(BODY | {"stream": True}).encode()


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeUpstream]:
    with fake_upstream() as server:
        yield server


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, upstream: FakeUpstream) -> Iterator[Installation]:
    folder: Path = tmp_path_factory.mktemp("abandoned")
    # One stream in two is stopped with its client, the other read to its end.
    (folder / "upstreams.toml").write_text(
        "".join(
            f'[[upstream]]\nname = "{kind}"\nkind = "{kind}"\nbase_url = "{upstream.url}"\nmodels = ["{MODEL}"]\n'
            for kind in ("openai", "vllm")
        )
    )
    made = {"UPSTREAMS_FILE": str(folder / "upstreams.toml"), "STATE_FILE": str(folder / "state.json")}
    with redis_server(folder) as url, installation(folder, **made) as installed:
        installed.environment["SPARE_REDIS"] = url
        yield installed


@pytest.fixture
def site(request: pytest.FixtureRequest, installed: Installation, upstream: FakeUpstream) -> Iterator[Site]:
    upstream.reset()
    installed.environment["REDIS_URL"] = installed.environment["SPARE_REDIS"] if request.param == "Redis" else ""
    secret = _with_keys(
        installed,
        f"terms = KeyTerms(concurrency_limit=10_000, points_limit_ppt={POINTS})\n"
        "print(issue_key(team=Team.objects.get(), created_by=None, name='k', terms=terms).secret)",
    )
    web = installed.start_web(prelude=PROBE)
    yield Site(installed, web, upstream, secret)
    web.process.terminate()
    web.process.wait(20)


def _with_keys(installed: Installation, code: str) -> str:
    imports = "from accounts.keys import KeyTerms, change_key, find_key_by_secret, issue_key"
    made = f"import django; django.setup()\nfrom accounts.models import Team\n{imports}\n{code}"
    return installed.run_python(made).strip()


@pytest.mark.parametrize("site", ["one process"], indirect=True)
def test_a_thousand_abandoned_streams_leave_nothing_behind(site: Site) -> None:
    _abandon(site, count=WARM_UP, seed=1)
    before = _settled(site)
    _abandon(site, count=STREAMS, seed=2)
    after = _settled(site)
    # One that ran since the start may have ended.
    assert Counter(after.tasks) - Counter(before.tasks) == Counter()
    assert (after.busy, site.in_flight) == (0, 0)
    # What is still open is the pool, whose size is the most that were in use at once.
    assert after.open == site.upstream.open_connections < 4 * AT_ONCE
    assert after.objects - before.objects < MAX_GROWTH
    assert after.bytes - before.bytes < MAX_GROWTH_BYTES
    _no_slot_is_taken(site)
    _every_point_set_aside_was_given_back(site)


@pytest.mark.parametrize("site", ["Redis"], indirect=True)
def test_neither_do_they_in_redis(site: Site) -> None:
    _abandon(site, count=STREAMS // 4, seed=3)
    _settled(site)
    _no_slot_is_taken(site)
    _every_point_set_aside_was_given_back(site)


def _abandon(site: Site, *, count: int, seed: int) -> None:
    """Leave streams somewhere on their way, `AT_ONCE` at a time, until `count` have reached the model server."""
    chance = random.Random(seed)
    site.upstream.reset()
    site.upstream.then(*[_story] * count * 2)

    async def keep_leaving() -> None:
        while len(site.upstream.received) < count:
            await _leave(site, chance.randrange(6), chance.random())

    async def all_of_them() -> None:
        await asyncio.gather(*(keep_leaving() for _ in range(AT_ONCE)))

    asyncio.run(all_of_them())
    site.upstream.reset()


async def _story(request: Received, wire: Wire) -> None:
    """Chunks with the count so far, hardly paced."""
    await wire.send(replies.STREAM_HEAD)
    for number in range(1, CHUNKS + 1):
        usage = {"prompt_tokens": 11, "completion_tokens": number}
        await wire.send(replies.chunked(replies.event(replies.chunk("word ", usage=usage))))
        await asyncio.sleep(0.002)
    await wire.send(replies.chunked(replies.event(replies.chunk(finish_reason="stop"))))
    await wire.send(replies.chunked(replies.DONE), replies.LAST_CHUNK)


async def _leave(site: Site, moment: int, part: float) -> None:
    """Within the request, right after it, a while later, or after some chunks; orderly or with a reset."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {site.secret}\r\n"
    request = head.encode() + b"content-length: %d\r\n\r\n%s" % (len(RAW_BODY), RAW_BODY)
    reader, writer = await asyncio.open_connection("127.0.0.1", site.web.port)
    try:
        writer.write(request[: int(len(request) * part)] if moment == 0 else request)
        await writer.drain()
        if moment == 2:
            await asyncio.sleep(part * 0.02)
        for _ in range(int(part * 2 * CHUNKS) if moment > 2 else 0):
            if not await reader.readline():
                break
        if moment % 2:
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _settled(site: Site) -> State:
    """What the process holds when nothing is on its way any more."""
    state = site.state

    def is_quiet() -> bool:
        nonlocal state
        before, state = state, site.state
        return (state.busy, site.in_flight) == (0, 0) and state.tasks == before.tasks

    wait_until(is_quiet, what="the last stream ending")
    return state


def _no_slot_is_taken(site: Site) -> None:
    """With one slot in all, a single one still taken would leave none for these calls."""
    _with_keys(
        site.installed,
        f"key = find_key_by_secret({site.secret!r})\n"
        f"change_key(key=key, name='k', terms=KeyTerms(concurrency_limit=1, points_limit_ppt={POINTS}))",
    )
    answers = [site.ask() for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200], answers[-1].text


def _every_point_set_aside_was_given_back(site: Site) -> None:
    """What counts as used is the price of all calls before, to the last digit."""
    answer = site.ask()
    last = answer.headers["x-request-id"].replace("-", "")
    key = "(select key_id from billing_usagerecord where id = ?)"
    sums = f"select sum(prompt_tokens), sum(completion_tokens) from billing_usagerecord where key_id = {key} and id < ?"
    wait_until(lambda: _row(site, sums, last, last) != (None, None), what="the records in the database")
    prompt, completion = _row(site, f"{sums} and status = 200", last, last)
    spent = Decimal(prompt * PROMPT_PPT + completion * OUTPUT_PPT) / 10**12
    assert Decimal(answer.headers["x-ratelimit-used-user-daily-points"]) == spent
    assert spent > 0


def _row(site: Site, sql: str, *values: str) -> tuple[Any, ...]:
    path = Path(site.installed.environment["DATA_DIR"]) / "token-factory.sqlite3"
    with closing(sqlite3.connect(path, timeout=20)) as database:
        row: tuple[Any, ...] = database.execute(sql, values).fetchone()
        return row
