"""How every client of Redis connects to it."""

from __future__ import annotations

from typing import Any

from redis.maint_notifications import MaintNotificationsConfig


def redis_options(*, timeout_seconds: float) -> dict[str, Any]:
    """For `redis.Redis.from_url`, nothing retried.

    Without the notices of maintenance that some hosted Redis sends: while the client listens for them it hands out
    pooled connections that the server has closed, and the first call on each fails after a restart.
    """
    return {
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    }
