"""Database work for code that lives in the event loop.

Each piece of work takes a connection for as long as its few statements need and gives it back, so that none is
held while a model is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django.db import connections

# Few, short statements: more threads would only mean more connections.
_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="off-loop")


async def off_loop[Result](work: Callable[[], Result]) -> Result:
    def with_connection() -> Result:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.get_running_loop().run_in_executor(_threads, with_connection)
