"""The key epoch as a request needs it: at once on one machine, from Redis where several share one."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import redis.asyncio
from redis.exceptions import RedisError

from accounts import key_epoch
from config.redis_options import redis_options

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
    """Reads that are asked for within one tick of the loop share one round trip."""

    def __init__(self, url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(url, **redis_options(timeout_seconds=REDIS_TIMEOUT_SECONDS))
        self._reading: asyncio.Task[bytes | None] | None = None
        self._paused_until = 0.0

    async def read(self) -> bytes | None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._paused_until:
            return None
        if self._reading is None:
            self._reading = loop.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def aclose(self) -> None:
        await self._redis.aclose()

    async def _read(self) -> bytes | None:
        # The yield lets this tick's requests join; those that come while Redis is asked must ask anew.
        await asyncio.sleep(0)
        self._reading = None
        try:
            value = await self._redis.get(key_epoch.REDIS_NAME)
            if value is None:
                # Lost or never set: a fresh random value, so that it equals nothing seen before.
                await self._redis.set(key_epoch.REDIS_NAME, key_epoch.fresh(), nx=True)
                value = await self._redis.get(key_epoch.REDIS_NAME)
        except (RedisError, OSError) as error:
            self._paused_until = asyncio.get_running_loop().time() + PAUSE_SECONDS
            log.warning("Redis does not answer (%s): keys are read from the database", type(error).__name__)
            return None
        return value if isinstance(value, bytes) else None


def epoch_reader(redis_url: str) -> EpochReader:
    return RedisEpoch(redis_url) if redis_url else LocalEpoch()
