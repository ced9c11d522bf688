"""How this web process sees the model servers: for staff, and without anything that is secret.

Each process finds out for itself what its servers are like, so what is told here is told of one process, by name.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from gateway.runtime import has_runtime, runtime
from gateway.upstreams import Upstream


class Status(TextChoices):
    READY = "ready", _("Ready")
    FULL = "full", _("Full")
    RESTING = "resting", _("Resting")
    # Its rest is over: the next call tries it, and the others wait for what that call learns.
    ON_TRIAL = "on_trial", _("On trial")
    SERVES_NOTHING = "serves_nothing", _("Serves nothing")


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """`models`: public ids with the server's own names where these differ. `max_concurrency` 0: no limit."""

    name: str
    kind: str
    address: str
    status: Status
    models: tuple[tuple[str, str], ...]
    in_flight: int
    max_concurrency: int
    # Failures in a row; what they are counted from is gone with the first success.
    failures: int
    rests_seconds: int
    last_failure: str
    failed_at: datetime | None


@dataclass(frozen=True, slots=True)
class ProcessState:
    host: str
    pid: int
    upstreams: tuple[UpstreamState, ...]

    @property
    def failing(self) -> int:
        """Servers that cannot be asked now, for a line elsewhere."""
        troubles = (Status.RESTING, Status.ON_TRIAL, Status.SERVES_NOTHING)
        return sum(upstream.status in troubles for upstream in self.upstreams)


def process_state() -> ProcessState | None:
    """None in a process without a gateway."""
    if not has_runtime():
        return None
    now = time.monotonic()
    upstreams = tuple(_state(upstream, now) for upstream in runtime().upstreams.all)
    return ProcessState(socket.gethostname(), os.getpid(), upstreams)


def _state(upstream: Upstream, now: float) -> UpstreamState:
    served, failed_at = upstream.served_as, upstream.failed_at
    return UpstreamState(
        name=upstream.name,
        kind=upstream.kind.value,
        address=_without_credentials(upstream.base_url),
        status=_status(upstream, now),
        models=tuple((public, "" if own == public else own) for public, own in served.items()),
        in_flight=upstream.in_flight,
        max_concurrency=upstream.max_concurrency,
        failures=upstream.failures,
        rests_seconds=max(0, round(upstream.rests_until - now)) if upstream.rests_until else 0,
        last_failure=upstream.last_failure,
        failed_at=datetime.fromtimestamp(failed_at, UTC) if failed_at else None,
    )


def _status(upstream: Upstream, now: float) -> Status:
    if not upstream.served_as:
        return Status.SERVES_NOTHING
    if upstream.rests_until:
        return Status.RESTING if now < upstream.rests_until else Status.ON_TRIAL
    return Status.FULL if upstream.is_full else Status.READY


def _without_credentials(url: str) -> str:
    """Scheme, host, port and path; a password in front of the host and a key in the query are nobody's to read."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
