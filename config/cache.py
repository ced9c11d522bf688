"""The cache, which holds what the sign-in throttles count: shared by all processes where there is Redis."""

from __future__ import annotations

import logging
from typing import Any

import redis
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache

from config.redis_options import redis_options

log = logging.getLogger("config")

TIMEOUT_SECONDS = 0.25


def cache_from_url(redis_url: str) -> dict[str, Any]:
    if not redis_url:
        return {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    options = redis_options(timeout_seconds=TIMEOUT_SECONDS)
    return {"BACKEND": "config.cache.SharedCache", "LOCATION": redis_url, "KEY_PREFIX": "tf", "OPTIONS": options}


class SharedCache(RedisCache):
    """Redis; while it does not answer, each process counts for itself, and nobody is kept from signing in."""

    def __init__(self, server: str, params: dict[str, Any]) -> None:
        super().__init__(server, params)
        self._own = LocMemCache("without-redis", {name: params[name] for name in params if name != "OPTIONS"})

    def get(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        return self._either("get", key, default, version)

    def set(self, key: Any, value: Any, *args: Any, **options: Any) -> None:
        self._either("set", key, value, *args, **options)

    def add(self, key: Any, value: Any, *args: Any, **options: Any) -> bool:
        return bool(self._either("add", key, value, *args, **options))

    def delete(self, key: Any, version: int | None = None) -> bool:
        return bool(self._either("delete", key, version))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return int(self._either("incr", key, delta, version))

    def _either(self, operation: str, *args: Any, **options: Any) -> Any:
        try:
            return getattr(super(), operation)(*args, **options)
        except (redis.RedisError, OSError) as error:
            log.warning("Redis does not answer (%s): sign-in throttles count per process", type(error).__name__)
            return getattr(self._own, operation)(*args, **options)
