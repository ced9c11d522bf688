"""What is awaited at every request and has mostly nothing to wait for: cheaper than what asyncio has for it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any


class _Nothing:
    def __await__(self) -> Generator[Any, Any, None]:
        return iter(())  # type: ignore[return-value]  # an iterator does, and costs less


# Instead of a coroutine that ends at once, and known by sight.
NOTHING_TO_AWAIT = _Nothing()


class LateEvent:
    """An asyncio.Event that is made when somebody waits for it: most requests are there whole when they begin."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._event: asyncio.Event | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        self._is_set = False
        if self._event is not None:
            self._event.clear()

    async def wait(self) -> None:
        if not self._is_set:
            self._event = self._event or asyncio.Event()
            await self._event.wait()
