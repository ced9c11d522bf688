"""Turns in the database, for code that lives in the event loop."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils import timezone

from playground.models import Turn
from playground.off_loop import off_loop


async def save(*, turn_id: int, **fields: Any) -> None:
    """Write these fields of a turn that is still being filled, and that its process lives."""
    alive = {"touched_at": timezone.now(), "state": Turn.State.STREAMING, "error": None}
    await off_loop(lambda: _own(turn_id).update(**alive | fields))


async def is_wanted(*, turn_id: int) -> bool:
    """Neither deleted nor asked to stop."""
    return await off_loop(lambda: _own(turn_id).filter(stop_requested=False).exists())


async def request_stop(*, turn_id: int) -> None:
    await off_loop(lambda: _filling(turn_id).update(stop_requested=True))


async def close_untouched(*, since: datetime) -> None:
    await off_loop(lambda: Turn.objects.untouched_since(since).close())


async def read(*, turn_id: int) -> Turn | None:
    """The turn as last saved; one that nobody fills any more is closed first."""

    def work() -> Turn | None:
        turn = Turn.objects.filter(pk=turn_id).first()
        if turn is not None and turn.is_cut_off:
            Turn.objects.filter(pk=turn_id).close_cut_off()
            turn.refresh_from_db()
        return turn

    return await off_loop(work)


def _filling(turn_id: int) -> Any:
    return Turn.objects.filter(pk=turn_id).streaming()


def _own(turn_id: int) -> Any:
    """The turn that this process fills, whatever others take it for."""
    return Turn.objects.filter(pk=turn_id).filled()
