"""Gates counted in the process and in Redis behave alike: all of them let a call through, or nothing is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from accounts import key_epoch
from gateway import redis_gates
from gateway.gates import Budget, Counters, Gates, LocalGates, Missing, Passage, Refusal, Slot, StaleKey, Window
from gateway.redis_gates import RedisGates
from tests.services import free_port, redis_server

NOW = 1_800_000_000.0
END = NOW + 3600

type Play = Callable[[Callable[[Counters], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(params=["in the process", "in Redis"])
def play(request: pytest.FixtureRequest) -> Play:
    """Run a scene against fresh counters."""

    async def in_redis(scene: Callable[[Counters], Awaitable[None]]) -> None:
        counters = RedisGates(request.getfixturevalue("redis_url"))
        await counters._redis.ask("FLUSHDB")
        try:
            await scene(counters)
        finally:
            await counters.aclose()

    async def scene_in_process(scene: Callable[[Counters], Awaitable[None]]) -> None:
        await scene(LocalGates())

    return lambda scene: asyncio.run(scene_in_process(scene) if request.param == "in the process" else in_redis(scene))


def window(limit: int, name: str = "rpm:key:1") -> Gates:
    return Gates(windows=(Window(name, limit, "token_rate_limit_exceeded"),))


def slot(limit: int) -> Gates:
    return Gates(slots=(Slot("open:key:1", limit, "token_concurrency_rate_limit_exceeded"),))


def budget(limit_ppt: int, reserve_ppt: int, *, used_ppt: int | None = 0, ends_at: float = END) -> Gates:
    return Gates(budgets=(Budget("points:team:1", limit_ppt, reserve_ppt, ends_at, used_ppt),))


async def left(counters: Counters) -> None:
    """What a call gave back has arrived."""
    if isinstance(counters, RedisGates):
        await asyncio.gather(*counters._leaving)


def test_a_window_lets_its_limit_through_and_says_when_one_is_free(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        for second in range(3):
            passage = await counters.enter(f"call-{second}", window(3), now=NOW + second)
            assert passage == Passage(remaining=2 - second, reset_at=NOW + 60, taken_ppt=0)
        refusal = await counters.enter("late", window(3), now=NOW + 10)
        assert isinstance(refusal, Refusal)
        assert (refusal.gate.name, refusal.retry_after_seconds) == ("rpm:key:1", 50)
        assert isinstance(await counters.enter("again", window(3), now=NOW + 60.5), Passage)
        assert isinstance(await counters.enter("too soon", window(3), now=NOW + 60.5), Refusal)

    play(scene)


def test_a_call_that_was_overtaken_is_not_told_to_wait_longer_than_the_window(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        assert isinstance(await counters.enter("first", window(1), now=NOW + 2), Passage)
        refusal = await counters.enter("overtaken", window(1), now=NOW)
        assert isinstance(refusal, Refusal)
        assert refusal.retry_after_seconds == 60

    play(scene)


def test_a_lowered_limit_waits_until_enough_calls_have_left(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        for second in range(5):
            await counters.enter(f"call-{second}", window(5), now=NOW + second)
        refusal = await counters.enter("next", window(2), now=NOW + 5)
        assert isinstance(refusal, Refusal)
        # Of five, four must have left: the fourth began at second 3.
        assert refusal.retry_after_seconds == 58

    play(scene)


def test_a_slot_is_free_again_when_its_call_has_left(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        assert isinstance(await counters.enter("a", slot(1), now=NOW), Passage)
        refusal = await counters.enter("b", slot(1), now=NOW)
        assert isinstance(refusal, Refusal)
        assert refusal.retry_after_seconds == 1
        counters.leave("a", slot(1), spent_ppt=None)
        await left(counters)
        assert isinstance(await counters.enter("b", slot(1), now=NOW + 1), Passage)

    play(scene)


def test_a_refusal_by_one_gate_has_used_up_nothing_at_another(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        both = Gates(window(2).windows, slot(1).slots, budget(100, 10).budgets)
        assert isinstance(await counters.enter("a", both, now=NOW), Passage)
        for number in range(5):
            assert isinstance(await counters.enter(f"refused-{number}", both, now=NOW), Refusal)
        counters.leave("a", both, spent_ppt=4)
        await left(counters)
        passage = await counters.enter("b", both, now=NOW + 1)
        assert passage == Passage(remaining=0, reset_at=NOW + 60, taken_ppt=4)

    play(scene)


def test_a_budget_counts_what_is_set_aside_and_then_what_was_spent(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        big = 9_000_000_000_000_000_000 // 4
        gates = budget(3 * big, big, used_ppt=1)
        assert await counters.enter("a", gates, now=NOW) == Passage(0, NOW, 1)
        assert await counters.enter("b", gates, now=NOW) == Passage(0, NOW, big + 1)
        refusal = await counters.enter("c", gates, now=NOW)
        assert isinstance(refusal, Refusal)
        assert (refusal.taken_ppt, refusal.retry_after_seconds) == (2 * big + 1, 3600)
        counters.leave("a", gates, spent_ppt=7)
        await left(counters)
        assert await counters.enter("c", gates, now=NOW) == Passage(0, NOW, big + 8)

    play(scene)


def test_exactly_the_whole_budget_may_be_spent(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        assert isinstance(await counters.enter("a", budget(10, 10), now=NOW), Passage)
        counters.leave("a", budget(10, 10), spent_ppt=10)
        await left(counters)
        assert isinstance(await counters.enter("free", budget(10, 0), now=NOW), Passage)
        assert isinstance(await counters.enter("b", budget(10, 1), now=NOW), Refusal)

    play(scene)


def test_a_new_period_begins_with_what_the_ledger_says(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        await counters.enter("a", budget(10, 10), now=NOW)
        later = budget(10, 4, used_ppt=6, ends_at=END + 86_400)
        assert await counters.enter("b", later, now=END) == Passage(0, END, 6)
        # The call of the old period ends: the new one is none of its business.
        counters.leave("a", budget(10, 10), spent_ppt=10)
        counters.leave("b", later, spent_ppt=1)
        await left(counters)
        assert await counters.used("points:team:1") == 7

    play(scene)


def test_a_counter_begins_only_with_what_the_ledger_says(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        gates = Gates(window(1).windows, slot(1).slots, budget(10, 4, used_ppt=None).budgets)
        assert await counters.enter("a", gates, now=NOW) == Missing("points:team:1")
        # Nothing was counted at the other gates.
        known = Gates(gates.windows, gates.slots, budget(10, 4, used_ppt=5).budgets)
        assert await counters.enter("a", known, now=NOW) == Passage(0, NOW + 60, 5)
        counters.leave("a", known, spent_ppt=1)
        await left(counters)
        assert await counters.enter("b", budget(10, 4, used_ppt=None), now=NOW + 1) == Passage(0, NOW + 1, 6)
        # What the ledger said a while ago is of no interest to a counter that runs.
        assert await counters.enter("c", budget(20, 4, used_ppt=0), now=NOW + 1) == Passage(0, NOW + 1, 10)
        assert await counters.enter("d", budget(10, 4, used_ppt=None), now=END) == Missing("points:team:1")

    play(scene)


def test_of_two_windows_the_earlier_one_counts_for_both(play: Play) -> None:
    """Processes that open a rolling window at the same time know of two; each must not begin the other's anew."""

    async def scene(counters: Counters) -> None:
        first, second = (budget(10, 4, used_ppt=0, ends_at=END + late) for late in (0, 0.5))
        await counters.enter("a", first, now=NOW)
        await counters.enter("b", second, now=NOW)
        assert isinstance(await counters.enter("c", second, now=NOW), Refusal)
        assert isinstance(await counters.enter("c", first, now=NOW), Refusal)
        # One that is to end before the one that runs is of other terms.
        assert await counters.enter("d", budget(10, 4, used_ppt=3, ends_at=END - 1), now=NOW) == Passage(0, NOW, 3)

    play(scene)


def test_a_counter_is_brought_to_the_ledger(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        await counters.enter("a", budget(100, 0, used_ppt=50), now=NOW)
        await counters.lower("points:team:1", 70, once_in_seconds=60)
        assert await counters.used("points:team:1") == -20
        for ledger_ppt, stands_at in ((0, 0), (9, 9), (8, 9), (10, 10), (2**60 + 1, 2**60 + 1), (2**60, 2**60 + 1)):
            await counters.raise_to("points:team:1", ledger_ppt)
            assert await counters.used("points:team:1") == stands_at
        await counters.raise_to("points:team:2", 5)
        assert await counters.used("points:team:2") is None

    play(scene)


def test_of_two_processes_that_find_a_counter_too_high_one_lowers_it(redis_url: str) -> None:
    async def scene() -> None:
        one, other = RedisGates(redis_url), RedisGates(redis_url)
        await one._redis.ask("FLUSHDB")
        await one.enter("a", budget(100, 0, used_ppt=50), now=NOW)
        did = [await counters.lower("points:team:1", 30, once_in_seconds=60) for counters in (one, other)]
        assert did == [True, False]
        assert await one.used("points:team:1") == 20
        await one.aclose()
        await other.aclose()

    asyncio.run(scene())


def test_slots_and_reservations_of_a_process_that_died_free_themselves(redis_url: str) -> None:
    async def scene() -> None:
        gates = Gates((), slot(1).slots, budget(10, 10).budgets)
        died, lives = RedisGates(redis_url), RedisGates(redis_url)
        await died._redis.ask("FLUSHDB")
        assert isinstance(await died.enter("a", gates, now=NOW), Passage)
        assert isinstance(await lives.enter("b", gates, now=NOW + 59), Refusal)
        assert isinstance(await lives.enter("b", gates, now=NOW + 61), Passage)
        await died.aclose()
        await lives.aclose()

    asyncio.run(scene())


def test_what_is_set_aside_is_summed_and_let_go_to_the_last_digit(redis_url: str) -> None:
    huge = 2**63 + 5
    limit = 10 * huge

    async def scene() -> None:
        counters = RedisGates(redis_url)
        ask = counters._redis.ask
        await ask("FLUSHDB")

        async def sums() -> list[bytes | None]:
            found: list[bytes | None] = await ask("HMGET", "tf:gate:points:team:1", "used", "held")
            return found

        passages = [
            await counters.enter(name, budget(limit, reserve, ends_at=NOW + 600), now=NOW + at)
            for name, reserve, at in (("a", huge, 0), ("b", 1_000_000_001, 1), ("c", 0, 2), ("d", 7, 50))
        ]
        taken = [passage.taken_ppt for passage in passages if isinstance(passage, Passage)]
        assert taken == [0, huge, huge + 1_000_000_001, huge + 1_000_000_001]
        assert await sums() == [b"0", b"%d" % (huge + 1_000_000_008)]
        gates = budget(limit, huge, ends_at=NOW + 600)
        counters.leave("a", gates, spent_ppt=huge - 1)
        await left(counters)
        assert await sums() == [b"%d" % (huge - 1), b"1000000008"]
        # The leases of b and c have run out; that b ends after all counts once.
        assert isinstance(await counters.enter("e", budget(limit, 3, ends_at=NOW + 600), now=NOW + 70), Passage)
        assert await sums() == [b"%d" % (huge - 1), b"10"]
        counters.leave("b", gates, spent_ppt=1)
        counters.leave("d", gates, spent_ppt=None)
        counters.leave("e", gates, spent_ppt=999_999_999)
        await left(counters)
        assert await sums() == [b"%d" % (huge + 999_999_999), b"0"]
        assert await counters.lower("points:team:1", huge + 1_999_999_999, once_in_seconds=60)
        assert await sums() == [b"-1000000000", b"0"]
        assert await counters.used("points:team:1") == -1_000_000_000
        await counters.aclose()

    asyncio.run(scene())


def test_what_a_counter_holds_is_put_right_when_nobody_holds_anything(redis_url: str) -> None:
    async def scene() -> None:
        counters = RedisGates(redis_url)
        ask, held = counters._redis.ask, ("HGET", "tf:gate:points:team:1", "held")
        await ask("FLUSHDB")
        for _ in range(2):
            # The first answer came too late, and it asked again.
            assert isinstance(await counters.enter("a", budget(100, 30), now=NOW), Passage)
        assert await ask(*held) == b"30"
        # Redis was short of memory.
        await ask("DEL", "tf:gate:points:team:1:h")
        assert await counters.enter("b", budget(100, 60), now=NOW) == Passage(0, NOW, 0)
        assert await ask(*held) == b"60"
        # Long after the period a call ends.
        await ask("DEL", "tf:gate:points:team:1")
        counters.leave("b", budget(100, 60), spent_ppt=50)
        await left(counters)
        assert await ask("EXISTS", "tf:gate:points:team:1") == 0
        await counters.aclose()

    asyncio.run(scene())


def test_the_key_epoch_is_looked_at_in_the_same_step(redis_url: str) -> None:
    gates = Gates(window(9).windows, slot(9).slots, budget(10, 4).budgets)

    async def scene() -> None:
        counters = RedisGates(redis_url)
        await counters._redis.ask("FLUSHDB")
        for known in (b"an epoch", b"another"):
            # Lost or never set, or another one since: nothing is counted.
            with pytest.raises(StaleKey):
                await counters.enter("a", gates, now=NOW, epoch=known)
            assert await counters._redis.ask("KEYS", "tf:gate:*") == []
            await counters._redis.ask("SET", key_epoch.REDIS_NAME, "an epoch")
        assert await counters.enter("a", gates, now=NOW, epoch=b"an epoch") == Passage(8, NOW + 60, 0)
        await counters.aclose()

    asyncio.run(scene())


def test_without_redis_nobody_knows_whether_keys_have_changed() -> None:
    async def scene() -> None:
        counters = RedisGates("redis://127.0.0.1:1/0")
        assert counters.know_epoch
        for _ in "ab":  # looked for, and left alone
            with pytest.raises(StaleKey):
                await counters.enter("a", window(1), now=NOW, epoch=b"an epoch")
            assert not counters.know_epoch
        assert await counters.enter("a", window(1), now=NOW) == Passage(0, NOW + 60, 0)
        await counters.aclose()

    asyncio.run(scene())


def test_what_is_told_of_points_are_those_of_the_first_budget(play: Play) -> None:
    async def scene(counters: Counters) -> None:
        both = (*budget(100, 10).budgets, Budget("points:key:1", 900, 10, END, 700))
        assert await counters.enter("a", Gates(budgets=both), now=NOW) == Passage(0, NOW, 0)
        assert await counters.enter("b", Gates(budgets=both), now=NOW) == Passage(0, NOW, 10)

    play(scene)


def test_what_is_under_way_is_renewed_as_long_as_it_lasts(redis_url: str) -> None:
    gates = Gates((), slot(9).slots, budget(10, 4, ends_at=time.time() + 3600).budgets)

    async def scene() -> None:
        counters = RedisGates(redis_url, lease_seconds=2)
        ask = counters._redis.ask
        await ask("FLUSHDB")
        for call_id in "ab":
            assert isinstance(await counters.enter(call_id, gates, now=time.time()), Passage)
        counters.leave("b", gates, spent_ppt=1)
        for name in ("tf:gate:open:key:1", "tf:gate:points:team:1:x"):
            before = float(await ask("ZSCORE", name, "a"))
            async with asyncio.timeout(20):
                while float(await ask("ZSCORE", name, "a")) <= before:  # noqa: ASYNC110 -- Redis sets no event
                    await asyncio.sleep(0.02)
            # One that has left does not come back.
            assert await ask("ZCARD", name) == 1
        assert await ask("PEXPIRETIME", "tf:gate:open:key:1") > before
        await counters.aclose()

    asyncio.run(scene())


def test_two_processes_share_every_limit(redis_url: str) -> None:
    async def scene() -> None:
        one, other = RedisGates(redis_url), RedisGates(redis_url)
        await one._redis.ask("FLUSHDB")
        results = await asyncio.gather(
            *((one, other)[number % 2].enter(f"call-{number}", window(30), now=NOW) for number in range(64))
        )
        assert sum(isinstance(result, Passage) for result in results) == 30
        await one.aclose()
        await other.aclose()

    asyncio.run(scene())


def test_without_redis_each_process_counts_for_itself(tmp_path: Path) -> None:
    async def scene() -> None:
        counters = RedisGates("redis://127.0.0.1:1/0")
        results = [await counters.enter(f"call-{number}", window(2), now=NOW) for number in range(3)]
        assert [type(result) for result in results] == [Passage, Passage, Refusal]
        counters.leave("call-0", window(2), spent_ppt=None)
        await counters.aclose()

    asyncio.run(scene())


def test_an_emptied_redis_is_noticed_and_what_was_under_way_counts(redis_url: str) -> None:
    async def scene() -> None:
        counters = RedisGates(redis_url)
        await counters._redis.ask("FLUSHDB")
        gates, unknown = budget(10, 4, used_ppt=0), budget(10, 4, used_ppt=None)
        for call_id in "ab":
            await counters.enter(call_id, gates, now=NOW)
        await counters._redis.ask("FLUSHDB")
        counters.leave("a", unknown, spent_ppt=4)
        await left(counters)
        assert await counters.enter("c", unknown, now=NOW) == Missing("points:team:1")
        # The first of them is in the ledger by now, the second is not.
        assert await counters.enter("c", budget(10, 4, used_ppt=4), now=NOW) == Passage(0, NOW, 4)
        counters.leave("b", unknown, spent_ppt=3)
        await left(counters)
        assert await counters.used("points:team:1") == 7
        await counters.aclose()

    asyncio.run(scene())


def test_whoever_counts_alone_begins_with_the_ledger_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_gates, "PAUSE_SECONDS", 0)
    port = free_port()
    unknown = budget(10, 4, used_ppt=None)

    async def scene() -> None:
        counters = RedisGates(f"redis://127.0.0.1:{port}/0")
        for used_ppt in (2, 5):
            assert await counters.enter("a", unknown, now=NOW) == Missing("points:team:1")
            assert await counters.enter("a", budget(10, 4, used_ppt=used_ppt), now=NOW) == Passage(0, NOW, used_ppt)
            counters.leave("a", unknown, spent_ppt=1)
            assert await counters.used("points:team:1") == used_ppt + 1
            await counters.raise_to("points:team:1", 9)
            assert isinstance(await counters.enter("b", unknown, now=NOW), Refusal)
            with redis_server(tmp_path, port=port):
                assert await counters.enter("c", unknown, now=NOW) == Missing("points:team:1")
        await counters.aclose()

    asyncio.run(scene())


def test_a_redis_that_is_back_has_its_counters_corrected_though_no_call_comes(tmp_path: Path) -> None:
    port = free_port()
    points = budget(10, 4, used_ppt=2)

    async def scene() -> None:
        counters = RedisGates(f"redis://127.0.0.1:{port}/0")
        assert await counters.enter("a", points, now=NOW) == Passage(0, NOW, 2)
        with redis_server(tmp_path, port=port), Redis(port=port) as client:
            client.hset("tf:gate:points:team:1", mapping={"used": 5})
            # As long as nobody has looked again this process counts for itself.
            assert await counters.used("points:team:1") == 2
            counters._paused_until = 0.0
            assert await counters.used("points:team:1") == 5
            await counters.raise_to("points:team:1", 9)
            assert await counters.lower("points:team:1", 2, once_in_seconds=60)
            assert client.hget("tf:gate:points:team:1", "used") == b"7"
        await counters.aclose()

    asyncio.run(scene())


def test_a_redis_that_was_restarted_is_not_away(tmp_path: Path) -> None:
    """Pooled connections end with it; none of them may be given to a call."""
    port = free_port()

    async def scene() -> None:
        counters = RedisGates(f"redis://127.0.0.1:{port}/0")
        with redis_server(tmp_path, port=port):
            for _ in range(2):
                # Two connections: both kinds of message are under way at once.
                await counters.enter("a", window(9), now=NOW)
                counters.leave("a", window(9), spent_ppt=None)
                await counters.enter("b", window(9), now=NOW)
                await left(counters)
        again = redis_server(tmp_path, port=port)
        await asyncio.to_thread(again.__enter__)
        try:
            for remaining in range(8, 5, -1):
                assert await counters.enter(f"c{remaining}", window(9), now=NOW) == Passage(remaining, NOW + 60, 0)
                counters.leave("a", window(9), spent_ppt=None)
            await left(counters)
            assert not counters._is_away
            assert await counters._redis.ask("ZCARD", "tf:gate:rpm:key:1") == 3
        finally:
            again.__exit__(None, None, None)
        await counters.aclose()

    asyncio.run(scene())
