"""The quota counters as `reconcile` reads them: out of Redis, which holds them for all web processes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import redis
from django.conf import settings

from billing.counters import Counted, NotReadable, Owner
from config.redis_options import redis_options
from gateway.redis_gates import PREFIX

NAMES = f"{PREFIX}points:"
TIMEOUT_SECONDS = 5.0
AT_ONCE = 500


def read_counters() -> dict[Owner, Counted] | None:
    """Every budget's counter; None without Redis, where they are in the one web process. Raises NotReadable."""
    if not settings.REDIS_URL:
        return None
    try:
        with redis.Redis.from_url(
            settings.REDIS_URL,
            decode_responses=True,
            **redis_options(timeout_seconds=TIMEOUT_SECONDS),
        ) as client:
            return dict(_counters(client))
    except redis.RedisError as error:
        raise NotReadable(f"{type(error).__name__}: {error}") from error


def _counters(client: redis.Redis) -> Iterable[tuple[Owner, Counted]]:
    # What is set aside lies beside each counter, under its name and a letter.
    names = [name for name in client.scan_iter(f"{NAMES}*", count=AT_ONCE) if name.rpartition(":")[2].isdigit()]
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        with client.pipeline(transaction=False) as pipeline:
            for name in some:
                pipeline.hmget(name, "ends", "used")
            rows = pipeline.execute()
        for name, (ends_ms, used_ppt) in zip(some, rows, strict=True):
            # It may have expired meanwhile.
            if ends_ms is not None and used_ppt is not None:
                yield _owner(name), Counted(datetime.fromtimestamp(int(ends_ms) / 1_000, UTC), int(used_ppt))


def _owner(name: str) -> Owner:
    kind, _, number = name.removeprefix(NAMES).partition(":")
    return Owner(key_id=int(number)) if kind == "key" else Owner(team_id=int(number))
