from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from billing.counters import Counters


class GatewayConfig(AppConfig):
    name = "gateway"

    def ready(self) -> None:
        from accounts import known_models
        from billing import counters

        known_models.provide(_served_models)
        counters.provide(_counters)


def _served_models() -> Sequence[str]:
    """What a key may be limited to; nothing in a process that serves nobody."""
    from gateway.runtime import runtime

    try:
        return [model.id for model in runtime().upstreams.models()]
    except RuntimeError:
        return []


def _counters() -> Counters | None:
    # Imported when it is asked for: most processes never do, and Redis' client takes its time.
    from gateway.quota_counters import read_counters

    return read_counters()
