"""What admission counts in Redis, read again for the comparison with the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.conf import LazySettings

from billing.counters import Counted, NotReadable, Owner
from gateway.gates import Budget, Gates, Passage
from gateway.quota_counters import read_counters
from gateway.redis_gates import RedisGates
from tests.services import dead_port, redis_server

ENDS_AT = float(int(time.time()) + 3_600)
LARGE_PPT = 2**60 + 1


@pytest.fixture
def redis_url(tmp_path: Path, settings: LazySettings) -> Iterator[str]:
    with redis_server(tmp_path) as url:
        settings.REDIS_URL = url
        yield url


async def _count(url: str) -> None:
    """A call of a team and its key that ended, and one of another team that has not."""
    gates = RedisGates(url)
    both = Gates(budgets=tuple(Budget(name, 2**62, 7, ENDS_AT, 0) for name in ("points:team:7", "points:key:3")))
    other = Gates(budgets=(Budget("points:team:8", 2**62, 7, ENDS_AT, 40),))
    for call_id, budgets in (("a", both), ("b", other)):
        assert isinstance(await gates.enter(call_id, budgets, now=time.time()), Passage)
    gates.leave("a", both, spent_ppt=LARGE_PPT)
    await gates.aclose()


def test_every_counter_is_read_with_its_period(redis_url: str) -> None:
    assert read_counters() == {}
    asyncio.run(_count(redis_url))
    end = datetime.fromtimestamp(ENDS_AT, UTC)
    assert read_counters() == {
        Owner(team_id=7): Counted(end, LARGE_PPT),
        Owner(key_id=3): Counted(end, LARGE_PPT),
        Owner(team_id=8): Counted(end, 40),
    }


def test_without_redis_there_are_none_to_read(settings: LazySettings) -> None:
    settings.REDIS_URL = ""
    assert read_counters() is None


def test_a_redis_that_is_away_is_said(settings: LazySettings) -> None:
    settings.REDIS_URL = f"redis://127.0.0.1:{dead_port()}/0"
    with pytest.raises(NotReadable, match="ConnectionError"):
        read_counters()
