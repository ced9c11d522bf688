"""Requests that are at work at the same time take their steps side by side.

One request touches more code and data than a core's second-level cache holds. Run from end to end one after the
other, each finds there the end of the one before; step by step, all but the first find what they need
(docs/decisions/hot-path.md). A few requests gain nothing by it: each step is a turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import coroutine

MANY = 6


class Company:
    """The requests that an event loop has at work, streams among them."""

    def __init__(self) -> None:
        self.requests = 0
        self.streams = 0

    @property
    def is_large(self) -> bool:
        """Whether whole answers are many, and more than streams: the turns of a loop full of those are long."""
        return self.requests >= MANY + self.streams and self.requests > 2 * self.streams

    @contextmanager
    def streaming(self) -> Iterator[None]:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


COMPANY = Company()


@coroutine
def step_done() -> Generator[None]:
    """In large company the others come to this point too before any goes on."""
    if COMPANY.is_large:
        yield
