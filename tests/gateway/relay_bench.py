"""A relay in front of the fake upstream, and what it recorded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

import uvloop

from billing.models import Outcome
from gateway.catalog import load
from gateway.chat import chat_job
from gateway.relay import Answer, Relay, RelaySettings
from gateway.schema import parse_chat_request
from gateway.transport import Transport
from gateway.upstreams import Kind, Upstream, Upstreams
from tests.fake_upstream.replies import MODEL
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.ledger import Ledger, new_call

CATALOG = load()


class Bench:
    """A relay in front of the fake upstream, its transport, and what it recorded."""

    def __init__(self, url: str, transport: Transport, *, kind: Kind, drain: bool, replicas: int) -> None:
        self.ledger = Ledger()
        self.told: list[Any] = []
        self.servers = [
            Upstream(f"server {number}", url, kind=kind, served_as={MODEL: MODEL}, discovers=False)
            for number in range(1, replicas + 1)
        ]
        self.transport = transport
        self.relay = Relay(
            upstreams=Upstreams(self.servers, catalog=CATALOG, transport=transport),
            transport=transport,
            log=self.ledger,
            settings=RelaySettings(drain_when_client_leaves=drain),
        )

    def answer(self, *, stream: bool = True, **fields: Any) -> Answer:
        document = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream} | fields
        request = parse_chat_request(document, find_model=CATALOG.get)
        call = new_call(self.ledger, stream=stream, on_finish=self.told.append)
        return self.relay.open(chat_job(request), call=call)

    def is_settled(self, outcome: Outcome, *, status: int = 200) -> bool:
        """One record with this outcome, told once, and no call left in flight."""
        record = self.ledger.record
        assert (record["outcome"], record["status"]) == (outcome.value, status)
        assert len(self.told) == 1
        return all(server.in_flight == 0 for server in self.servers)


@asynccontextmanager
async def bench(
    upstream: FakeUpstream, *, kind: Kind = Kind.OPENAI, drain: bool = True, replicas: int = 1
) -> AsyncIterator[Bench]:
    transport = Transport()
    try:
        yield Bench(upstream.url, transport, kind=kind, drain=drain, replicas=replicas)
    finally:
        await transport.aclose()


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(scenario())


async def read_events(answer: Answer) -> list[bytes]:
    async with answer, aclosing(answer.events()) as events:
        return [data async for data in events]


async def read_whole(answer: Answer) -> bytes:
    async with answer:
        return await answer.read()
