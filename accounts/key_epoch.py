"""A value that changes whenever something about keys does.

Processes cache what they know of a key together with the epoch they read before loading it, and
trust it only while the epoch is still the same. On one machine the epoch is eight random bytes in
a mapped file, read without a system call; with Redis it is a value there. Random rather than
counted: a value that was lost and begun anew never equals an old one.
"""

from __future__ import annotations

import mmap
import os
import secrets
from functools import cache
from pathlib import Path

import redis
from django.conf import settings

from config.redis_options import redis_options

REDIS_NAME = "tf:key-epoch"
SIZE = 8


class NotTold(Exception):
    """The change stands, but Redis could not be reached: processes that still reach it may not have heard."""


def bump() -> None:
    """Make every process reload what it knows of keys. Call after the change is committed.

    Raises NotTold: whoever made the change must not be shown that it binds everywhere.
    """
    _file()[:SIZE] = secrets.token_bytes(SIZE)
    if settings.REDIS_URL:
        try:
            _redis().set(REDIS_NAME, fresh())
        except (redis.RedisError, OSError) as error:
            raise NotTold from error


def fresh() -> str:
    return secrets.token_hex(SIZE)


def local() -> bytes:
    """The epoch of this machine's processes."""
    return _file()[:SIZE]


@cache
def _file() -> mmap.mmap:
    path = Path(settings.DATA_DIR) / "key-epoch"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if os.fstat(descriptor).st_size < SIZE:
            os.pwrite(descriptor, secrets.token_bytes(SIZE), 0)
        return mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)


@cache
def _redis() -> redis.Redis:
    return redis.Redis.from_url(settings.REDIS_URL, **redis_options(timeout_seconds=0.5))
