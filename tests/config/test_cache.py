"""What the sign-in throttles count is shared through Redis, and goes on per process without it."""

from __future__ import annotations

from pathlib import Path

from config.cache import SharedCache, cache_from_url
from tests.services import dead_port, redis_server


def cache(url: str) -> SharedCache:
    wanted = cache_from_url(url)
    return SharedCache(wanted["LOCATION"], wanted | {"TIMEOUT": 300})


def test_without_redis_each_process_counts_for_itself() -> None:
    assert cache_from_url("")["BACKEND"].endswith("LocMemCache")


def test_two_processes_see_one_count(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url:
        one, other = cache(url), cache(url)
        try:
            assert one.get("count", 0) == 0
            one.set("count", 3)
            assert other.incr("count") == 4
            assert other.add("count", 1) is False
            assert one.delete("count") is True
            assert other.get("count") is None
        finally:
            for each in (one, other):
                for pool in each._cache._pools.values():  # type: ignore[attr-defined]
                    pool.disconnect()


def test_where_redis_does_not_answer_the_count_goes_on() -> None:
    away = cache(f"redis://127.0.0.1:{dead_port()}/0")
    assert away.add("count", 1) is True
    assert away.incr("count") == 2
    assert away.get("count") == 2
    assert away.delete("count") is True
    assert away.get("count") is None
