"""A chat stream pushed to a client: at its pace, to its end, and recorded before that end is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import pairwise

import pytest

from billing.models import Outcome
from gateway import sse
from gateway.connection import HIGH_WATER_BYTES
from gateway.errors import UpstreamUnavailable
from gateway.upstreams import Kind
from tests.fake_upstream import replies
from tests.fake_upstream.replies import chunk, event, hello
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.loops import until
from tests.gateway.relay_bench import bench, run

# What the sockets between the two hold beside our own buffer.
SOCKETS_BYTES = 8 * 1024 * 1024


class Client:
    """Takes events; while `slow` is a future that is not done, it has not taken the last ones."""

    def __init__(self) -> None:
        self.got = b""
        self.slow: asyncio.Future[None] | None = None

    def write(self, data: bytes) -> Awaitable[None] | None:
        self.got += data
        return self.slow


def test_events_reach_the_client_as_they_are_and_done_is_left_to_the_caller(upstream: FakeUpstream) -> None:
    upstream.then(replies.stream(*hello()))

    async def scenario() -> None:
        async with bench(upstream) as made:
            client = Client()
            async with made.answer(stream_options={"include_usage": True}) as answer:
                await answer.pump(client.write)
                assert made.ledger.record["completion_tokens"] == 7
            assert client.got == b"".join(hello())
            assert answer.call.bytes_out == len(client.got)
            assert made.is_settled(Outcome.OK)

    run(scenario)


def test_nothing_more_is_taken_from_the_upstream_than_the_client_takes(upstream: FakeUpstream) -> None:
    text = "x" * 32_768
    events = [event(chunk(text)) for _ in range(1000)]
    upstream.then(replies.stream(*events, event(chunk(finish_reason="stop"))))

    async def scenario() -> None:
        async with bench(upstream) as made:
            client = Client()
            client.slow = asyncio.get_running_loop().create_future()
            async with made.answer() as answer:
                pumping = asyncio.create_task(answer.pump(client.write))
                await until(lambda: client.got)
                (connection,) = made.transport.open_connections
                await until(lambda: connection._paused)
                taken = len(client.got)
                assert connection._buffered < HIGH_WATER_BYTES + 262_144
                assert len(client.got) == taken < SOCKETS_BYTES
                waited, client.slow = client.slow, None
                waited.set_result(None)
                await pumping
            assert client.got == b"".join([*events, event(chunk(finish_reason="stop"))])

    run(scenario)


def test_a_fast_stream_leaves_the_others_their_turn(upstream: FakeUpstream) -> None:
    events = [event(chunk("x" * 32_768)) for _ in range(600)]
    upstream.then(replies.stream(*events, event(chunk(finish_reason="stop"))))
    taken: list[int] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with bench(upstream) as made:
            client = Client()
            waited = client.slow = loop.create_future()

            def look_at_each_turn() -> None:
                taken.append(len(client.got))
                loop.call_soon(look_at_each_turn)

            async with made.answer() as answer:
                pumping = asyncio.create_task(answer.pump(client.write))
                await until(lambda: client.got)
                (connection,) = made.transport.open_connections
                # What the sockets hold waits to be read at once.
                await until(lambda: connection._paused)
                client.slow = None
                look_at_each_turn()
                waited.set_result(None)
                await pumping

    run(scenario)
    assert max(after - before for before, after in pairwise(taken)) <= 4 * HIGH_WATER_BYTES


def test_a_client_that_fails_ends_the_call_with_its_failure(upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(event(chunk("Hi")))))

    def write(data: bytes) -> Awaitable[None] | None:
        raise RuntimeError("no such client")

    async def scenario() -> None:
        async with bench(upstream) as made:
            with pytest.raises(RuntimeError, match="no such client"):
                async with made.answer() as answer:
                    await answer.pump(write)
            assert made.is_settled(Outcome.ERROR)
            assert not made.transport.open_connections

    run(scenario)


def test_a_stream_that_is_cut_is_recorded_and_told(upstream: FakeUpstream) -> None:
    upstream.then(replies.cut_stream(event(chunk("Hi"))))

    async def scenario() -> None:
        async with bench(upstream) as made:
            client = Client()
            async with made.answer() as answer:
                with pytest.raises(UpstreamUnavailable):
                    await answer.pump(client.write)
                assert made.ledger.record["outcome"] == "error"
            assert client.got == event(chunk("Hi"))
            assert made.is_settled(Outcome.ERROR)

    run(scenario)


def test_an_event_beyond_the_limit_is_an_error(upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse.EventSplitter.__init__, "__kwdefaults__", {"max_event_bytes": 1000})
    upstream.then(replies.stream(event(chunk("x" * 2000))[:-2], done=False))

    async def scenario() -> None:
        async with bench(upstream) as made:
            async with made.answer() as answer:
                with pytest.raises(UpstreamUnavailable, match="too large"):
                    await answer.pump(Client().write)
            assert made.is_settled(Outcome.ERROR)

    run(scenario)


@pytest.mark.parametrize(("kind", "outcome"), [(Kind.OPENAI, Outcome.STOPPED), (Kind.VLLM, Outcome.CLIENT_GONE)])
def test_a_stream_that_this_side_ends_stops_the_upstream(upstream: FakeUpstream, kind: Kind, outcome: Outcome) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(event(chunk("Hi")))))

    async def scenario() -> None:
        async with bench(upstream, kind=kind) as made:
            client = Client()
            async with made.answer() as answer:
                pumping = asyncio.create_task(answer.pump(client.write))
                await until(lambda: client.got)
                if outcome is Outcome.STOPPED:
                    answer.stop()
                else:
                    answer.client_left()
                await pumping
            assert made.is_settled(outcome)
            await until(lambda: upstream.hangups)

    run(scenario)
