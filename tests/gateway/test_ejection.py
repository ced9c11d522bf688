"""Which failures let a server rest, and what ends its rest."""

from __future__ import annotations

import time

import httpx
import pytest

from gateway.errors import CallError, UpstreamRefusal
from gateway.upstreams import Kind
from tests.fake_upstream import replies
from tests.fake_upstream.replies import completion
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.relay_bench import Bench, bench, read_events, read_whole, run
from tests.gateway.test_relay import Fails


@pytest.mark.parametrize(
    "kind", [httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadTimeout, httpx.RemoteProtocolError]
)
def test_a_server_that_does_not_answer_rests(kind: type[httpx.HTTPError]) -> None:
    async def scenario() -> None:
        made = Bench("http://127.0.0.1:9/v1", Fails(kind("gone")), kind=Kind.OPENAI, drain=True, replicas=1)
        with pytest.raises(CallError):
            await read_events(made.answer())
        (server,) = made.servers
        assert (server.failures, server.is_ready(time.monotonic())) == (1, False)

    run(scenario)


@pytest.mark.parametrize(("status", "rests"), [(400, False), (429, False), (500, False), (502, True), (503, True)])
def test_only_a_refusal_to_serve_lets_a_server_rest(upstream: FakeUpstream, status: int, rests: bool) -> None:
    upstream.then(replies.answer(b"no", status=status), replies.answer(completion()))

    async def scenario() -> None:
        async with bench(upstream) as made:
            with pytest.raises(UpstreamRefusal):
                await read_whole(made.answer(stream=False))
            (server,) = made.servers
            assert (server.failures, server.is_ready(time.monotonic())) == (int(rests), not rests)
            # Alone it is asked all the same, and a good answer ends its rest.
            await read_whole(made.answer(stream=False))
            assert (server.failures, server.is_ready(time.monotonic())) == (0, True)

    run(scenario)
