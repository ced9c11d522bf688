"""An awaitable with nothing to wait for: cheaper than a coroutine that ends at once, and known by sight."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any


class _Nothing:
    def __await__(self) -> Generator[Any, Any, None]:
        return iter(())  # type: ignore[return-value]  # an iterator does, and costs less


NOTHING_TO_AWAIT = _Nothing()
