"""People, and a gateway in this process that talks to demo backends on sockets."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections

from accounts.models import Team, User
from accounts.teams import personal_team
from billing.models import Source
from gateway.caller import Caller
from gateway.catalog import load, unknown_model
from gateway.relay import RelaySettings
from gateway.runtime import Runtime, RuntimeSettings, set_runtime
from gateway.upstreams import Kind, Upstream
from playground import asking, generation, own_tasks
from playground.asking import Exchange, Said
from playground.chat_request import Chosen
from tests.fake_upstream.server import FakeUpstream, fake_upstream

ROOT = Path(__file__).parents[2]

type Serve = Callable[[Callable[[Runtime], Awaitable[None]]], None]


CATALOG = load()


def chosen(model: str = "DeepSeek-V4-Flash", **settings: Any) -> Chosen:
    return Chosen(CATALOG.get(model) or unknown_model(model), settings)


def begin(
    person: User, team: Team, text: str = "Hello", *, model: str = "DeepSeek-V4-Flash", **settings: Any
) -> Exchange:
    """A conversation with a question and an answer that is still to be filled."""
    return asking.begin(owner=person, team=team, said=Said(text), chosen=chosen(model, **settings))


@pytest.fixture
def person(db: None) -> User:
    user = User.objects.create_user("mei@example.com")
    personal_team(user=user)
    return user


@pytest.fixture
def stranger(db: None) -> User:
    user = User.objects.create_user("tom@example.com")
    personal_team(user=user)
    return user


@pytest.fixture
def team(person: User) -> Team:
    return personal_team(user=person)


@pytest.fixture
def caller(person: User, team: Team) -> Caller:
    return Caller(team_id=team.pk, key_id=0, member_id=person.pk, source=Source.PLAYGROUND)


def _demo(pace_seconds: str) -> Iterator[str]:
    command = [sys.executable, "-m", "gateway.demo", "--port", "0", "--pace-seconds", pace_seconds]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("listening on ").strip()
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="session")
def demo_url() -> Iterator[str]:
    """A backend that answers as fast as it can."""
    yield from _demo("0")


@pytest.fixture(scope="session")
def slow_demo_url() -> Iterator[str]:
    """A backend whose answers take several seconds."""
    yield from _demo("0.02")


@asynccontextmanager
async def _serving(url: str, data_dir: Path) -> AsyncIterator[Runtime]:
    upstream = Upstream(name="demo", base_url=f"{url}/v1", kind=Kind.DEMO)
    running = Runtime(
        RuntimeSettings(
            data_dir=data_dir, catalog=load(), upstreams=(upstream,), relay=RelaySettings(), journal_fsync="never"
        )
    )
    await running.start()
    set_runtime(running)
    try:
        yield running
    finally:
        await generation.shut_down()
        await own_tasks.shut_down()
        await running.stop()
        set_runtime(None)
        # The thread of this loop's synchronous calls goes with the loop, its connection first.
        await sync_to_async(connections.close_all)()


def _server(url: str, data_dir: Path) -> Serve:
    def serve(scenario: Callable[[Runtime], Awaitable[None]]) -> None:
        async def main() -> None:
            async with _serving(url, data_dir) as running:
                await scenario(running)

        asyncio.run(main())

    return serve


@pytest.fixture
def serve(demo_url: str, tmp_path: Path, transactional_db: None) -> Serve:
    """Run a scenario in a web process's event loop, with the gateway started."""
    return _server(demo_url, tmp_path)


@pytest.fixture
def serve_slowly(slow_demo_url: str, tmp_path: Path, transactional_db: None) -> Serve:
    return _server(slow_demo_url, tmp_path)


@pytest.fixture(scope="session")
def _upstream_server() -> Iterator[FakeUpstream]:
    with fake_upstream() as server:
        yield server


@pytest.fixture
def upstream(_upstream_server: FakeUpstream) -> FakeUpstream:
    """A model server that says what a test wants it to say: one model each that reads, speaks and decides."""
    _upstream_server.reset()
    _upstream_server.models = [{"id": name, "object": "model"} for name in ("MinerU2.5-Pro", "OmniVoice", "d3")]
    return _upstream_server


@pytest.fixture
def serve_told(upstream: FakeUpstream, tmp_path: Path, transactional_db: None) -> Serve:
    """The same with `upstream` as its only model server."""
    return _server(upstream.url.removesuffix("/v1"), tmp_path)


@pytest.fixture
def chat_body() -> dict[str, Any]:
    return {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": "Tell me about tides."}]}
