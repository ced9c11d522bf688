"""The ids of the models that a key can be limited to. The gateway, which knows them, says them here when it starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_source: Callable[[], Sequence[str]] = tuple


def known_models() -> Sequence[str]:
    return _source()


def provide(source: Callable[[], Sequence[str]]) -> None:
    global _source
    _source = source
