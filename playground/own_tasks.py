"""Tasks that belong to the web process and not to the request that began them: whoever asked may leave."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any

# asyncio keeps weak references to tasks only.
_tasks: set[asyncio.Task[Any]] = set()


def begin[Result](work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    # Not the request's context: its database thread goes away with the request.
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


async def result_of[Result](work: Coroutine[Any, Any, Result]) -> Result:
    """What comes of the work; it is done to its end even if nobody waits any more."""
    return await asyncio.shield(begin(work))


async def shut_down() -> None:
    """Before the event loop ends: what still runs is cut, and says so where it keeps what it has."""
    tasks = list(_tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
