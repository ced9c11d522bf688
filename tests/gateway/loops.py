"""Waiting inside an event loop for something that happens outside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 -- the other side is a thread or a process, it sets no event here
            await asyncio.sleep(0.005)
