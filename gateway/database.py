"""What a call asks the database: off the event loop, on a connection that is given back."""

from __future__ import annotations

from collections.abc import Callable

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from config.database_reach import reaching_database


async def in_database[**P, T](work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Raises what `work` does; OperationalError, without waiting for each call anew, while the database is away."""

    def run() -> T:
        close_old_connections()
        try:
            with reaching_database():
                return work(*args, **kwargs)
        finally:
            close_old_connections()

    return await sync_to_async(run, thread_sensitive=False)()
