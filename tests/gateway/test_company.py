"""Many requests take their steps side by side; a few, or those beside more streams, run one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.company import COMPANY, MANY, step_done
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import GatewayProcess
from tests.services import wait_until


@pytest.fixture(autouse=True)
def nobody_else() -> Iterator[None]:
    COMPANY.requests = COMPANY.streams = 0
    yield
    COMPANY.requests = COMPANY.streams = 0


def steps_of(count: int) -> list[tuple[int, int]]:
    """Each step of `count` requests, as (request, step), in the order in which they were taken."""
    taken: list[tuple[int, int]] = []

    async def request(number: int) -> None:
        for step in range(3):
            await step_done()
            taken.append((number, step))

    async def all_of_them() -> None:
        await asyncio.gather(*map(request, range(count)))

    asyncio.run(all_of_them())
    return taken


def test_many_take_each_step_together() -> None:
    COMPANY.requests = MANY
    assert steps_of(MANY) == [(number, step) for step in range(3) for number in range(MANY)]


@pytest.mark.parametrize(
    ("requests", "streams"), [(1, 0), (MANY - 1, 0), (MANY, 1), (3 * MANY, 2 * MANY), (1000, 990), (1000, 1000)]
)
def test_a_few_and_those_beside_many_streams_do_not_wait_for_each_other(requests: int, streams: int) -> None:
    COMPANY.requests, COMPANY.streams = requests, streams
    assert steps_of(3) == [(number, step) for number in range(3) for step in range(3)]


def test_whoever_is_cancelled_while_the_others_come_along_is_gone_at_once() -> None:
    COMPANY.requests = MANY

    async def waits() -> None:
        await step_done()
        raise AssertionError("went on")

    async def scene() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())


def test_each_request_is_counted_while_it_lasts_however_it_ends(
    gateway: GatewayProcess, upstream: FakeUpstream
) -> None:
    def at_work() -> tuple[str, str]:
        lines = dict(line.rsplit(" ", 1) for line in gateway.http.get("/metrics").text.splitlines() if line[0] != "#")
        return lines["tokenfactory_requests_at_work"], lines["tokenfactory_streams_at_work"]

    gate = upstream.gate()
    stream = replies.paused_stream(gate, replies.hello()[:1], [*replies.hello()[1:], replies.DONE])
    upstream.then(replies.answer(replies.completion()), replies.answer({"error": "no"}, status=400), stream)
    assert [gateway.ask().status_code, gateway.ask().status_code, gateway.ask(model="nope").status_code] == [
        200,
        400,
        400,
    ]
    assert gateway.http.get("/v1/nothing").status_code == 404
    assert at_work() == ("0.0", "0.0")
    with gateway.streamed() as response:
        assert next(response.iter_bytes())
        assert at_work() == ("1.0", "1.0")
    gate.open()
    wait_until(lambda: at_work() == ("0.0", "0.0"), what="the stream whose client left being over")
