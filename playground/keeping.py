"""The sign of life of work that goes on: renewed by the task that does it, looked at by everybody else."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from functools import partial

from django.utils import timezone

from playground.history import Work
from playground.off_loop import off_loop

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


async def keep(kind: type[Work], id: uuid.UUID, *, unwanted: Callable[[], None]) -> None:
    """Renew it until cancelled; `unwanted` is called when a stop was asked for, or the thing deleted."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            wanted = await off_loop(partial(_renew, kind, id))
        except Exception:
            # The database is away: the work goes on, the next look tries again.
            logger.exception("%s %s could not be renewed", kind.__name__, id)
            continue
        if not wanted:
            unwanted()


async def is_wanted(kind: type[Work], id: uuid.UUID) -> bool:
    """Neither deleted nor asked to stop."""
    return await off_loop(kind.objects.working().filter(pk=id, stop_requested=False).exists)


def _renew(kind: type[Work], id: uuid.UUID) -> bool:
    working = kind.objects.working().filter(pk=id)
    return bool(working.update(touched_at=timezone.now())) and not working.filter(stop_requested=True).exists()
