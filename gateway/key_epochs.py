"""The key epoch as a request needs it: at once on one machine, from Redis where several share one."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from redis.exceptions import RedisError

from accounts import key_epoch
from gateway.redis_line import RedisLine, reason

log = logging.getLogger("gateway")

REDIS_TIMEOUT_SECONDS = 0.25
# After a failure Redis is left alone this long, so that no request waits for a black hole again and again.
PAUSE_SECONDS = 1.0


class EpochReader(Protocol):
    async def read(self) -> bytes | None:
        """The epoch, or None where it cannot be told: then nothing cached is to be trusted."""

    async def aclose(self) -> None: ...


class LocalEpoch:
    async def read(self) -> bytes | None:
        return key_epoch.local()

    async def aclose(self) -> None:
        pass


class RedisEpoch:
    """Asked anew for each request: a revocation binds the next one."""

    def __init__(self, url: str) -> None:
        self._redis = RedisLine(url, timeout_seconds=REDIS_TIMEOUT_SECONDS)
        self._paused_until = 0.0

    async def read(self) -> bytes | None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until:
            return None
        try:
            value = await self._redis.ask("GET", key_epoch.REDIS_NAME)
            if value is None:
                # Lost or never set: a fresh random value, so that it equals nothing seen before.
                await self._redis.ask("SET", key_epoch.REDIS_NAME, key_epoch.fresh(), "NX")
                value = await self._redis.ask("GET", key_epoch.REDIS_NAME)
        except RedisError as error:
            if loop.time() >= self._paused_until:
                log.warning("Redis does not answer (%s): keys are read from the database", reason(error))
            self._paused_until = loop.time() + PAUSE_SECONDS
            return None
        return value if isinstance(value, bytes) and value else None

    async def aclose(self) -> None:
        await self._redis.aclose()


def epoch_reader(redis_url: str) -> EpochReader:
    return RedisEpoch(redis_url) if redis_url else LocalEpoch()
