"""Turns in the database, for code that lives in the event loop.

Each call takes a connection for as long as its few statements need and gives it back, so
that no connection is held while an answer is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from django.db import connections
from django.utils import timezone

from playground.models import Turn

# Few, short statements: more threads would only mean more connections.
_threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="turns")


async def save(*, turn_id: int, **fields: Any) -> None:
    """Write these fields of a turn that is still being filled, and that its process lives."""
    await _run(lambda: _filling(turn_id).update(touched_at=timezone.now(), **fields))


async def is_wanted(*, turn_id: int) -> bool:
    """Neither deleted nor asked to stop."""
    return await _run(lambda: _filling(turn_id).filter(stop_requested=False).exists())


async def request_stop(*, turn_id: int) -> None:
    await _run(lambda: _filling(turn_id).update(stop_requested=True))


async def close_untouched(*, since: datetime) -> None:
    await _run(lambda: Turn.objects.untouched_since(since).close())


async def read(*, turn_id: int) -> Turn | None:
    """The turn as last saved; one that nobody fills any more is closed first."""

    def work() -> Turn | None:
        turn = Turn.objects.filter(pk=turn_id).first()
        if turn is not None and turn.is_cut_off:
            Turn.objects.filter(pk=turn_id).close_cut_off()
            turn.refresh_from_db()
        return turn

    return await _run(work)


def _filling(turn_id: int) -> Any:
    return Turn.objects.filter(pk=turn_id, state=Turn.State.STREAMING)


async def _run[Result](work: Callable[[], Result]) -> Result:
    def with_connection() -> Result:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_threads, with_connection)
