"""Whether PostgreSQL can be reached, as the pool of connections finds out: nobody queues for one that cannot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import InterfaceError, OperationalError

_is_away = threading.Event()
_trying = threading.Lock()


class DatabaseAway(OperationalError):
    """It could not be reached a moment ago, and somebody else is trying."""


def try_again(pool: Any) -> None:
    """The pool's `reconnect_failed`: by itself it waits twice as long after each failure, up to minutes."""
    if not pool.get_stats()["pool_size"]:
        _is_away.set()
    pool.check()


@contextmanager
def reaching_database() -> Iterator[None]:
    """Around work with the database. While that is away one at a time tries; raises DatabaseAway for all others."""
    if not _is_away.is_set():
        yield
        return
    if not _trying.acquire(blocking=False):
        raise DatabaseAway("the database cannot be reached")
    is_reached = True
    try:
        yield
    except (InterfaceError, OperationalError):
        is_reached = False
        raise
    finally:
        if is_reached:
            _is_away.clear()
        _trying.release()
