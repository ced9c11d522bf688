"""An event that is made late behaves as asyncio's own."""

from __future__ import annotations

import asyncio

from config.awaitables import LateEvent


def test_an_event_that_is_made_late_is_one() -> None:
    async def scene() -> None:
        event = LateEvent()
        waiting = [asyncio.ensure_future(event.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert [one.done() for one in waiting] == [True, False, False]
        event.set()
        await asyncio.gather(*waiting[1:])
        assert event.is_set()
        await event.wait()
        event.clear()
        assert not event.is_set()
        again = asyncio.ensure_future(event.wait())
        await asyncio.sleep(0)
        assert not again.done()
        event.set()
        await again

    asyncio.run(scene())
