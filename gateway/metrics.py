"""What a web process counts for Prometheus. Labels are bounded: models that are served, endpoints, statuses, gates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from billing.pricing import PPT_PER_POINT
from gateway.call import Call

if TYPE_CHECKING:
    from gateway.runtime import Runtime

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
REGISTRY = CollectorRegistry()
CALLS = Counter("tokenfactory_calls", "Finished calls.", ("endpoint", "model", "status"), registry=REGISTRY)
TOKENS = Counter("tokenfactory_tokens", "Tokens used.", ("model", "meter"), registry=REGISTRY)
POINTS = Counter("tokenfactory_points", "Points of finished calls, rounded.", ("model",), registry=REGISTRY)
REFUSALS = Counter("tokenfactory_refusals", "Calls refused by a limit.", ("code",), registry=REGISTRY)
FIRST_BYTE = Histogram(
    "tokenfactory_first_byte_seconds", "Time to the first byte of an answer.", registry=REGISTRY, buckets=SECONDS
)
DURATION = Histogram("tokenfactory_call_seconds", "Time of whole calls.", registry=REGISTRY, buckets=SECONDS)


@lru_cache(maxsize=4096)
def _of_call(endpoint: str, model: str, status: int) -> Counter:
    return CALLS.labels(endpoint, model, str(status))


@lru_cache(maxsize=1024)
def _of_model(model: str) -> tuple[Counter, Counter, Counter, Counter]:
    fresh, cached, output = (TOKENS.labels(model, meter) for meter in ("input", "cache_read", "output"))
    return fresh, cached, output, POINTS.labels(model)


def count_call(call: Call, *, spent_ppt: int) -> None:
    _of_call(call.endpoint, call.model, call.status).inc()
    counts = call.counts
    if counts.prompt or counts.completion:
        fresh, cached, output, points = _of_model(call.model)
        fresh.inc(counts.prompt - counts.cached)
        output.inc(counts.completion)
        if counts.cached:
            cached.inc(counts.cached)
        if spent_ppt:
            points.inc(spent_ppt / PPT_PER_POINT)
    if call.first_byte_at:
        FIRST_BYTE.observe(max(0.0, call.first_byte_at - call.started_at))
    DURATION.observe(max(0.0, time.time() - call.started_at))


def count_refusal(code: str) -> None:
    REFUSALS.labels(code).inc()


def exposition(runtime: Runtime) -> bytes:
    """Everything counted, and what is read when it is asked for."""
    state = CollectorRegistry()
    state.register(_State(runtime))
    return generate_latest(REGISTRY) + generate_latest(state)


class _State(Collector):
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def collect(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily("tokenfactory_upstream_in_flight", "Calls at a server.", labels=["upstream"])
        ready = GaugeMetricFamily("tokenfactory_upstream_ready", "0 while a server rests.", labels=["upstream"])
        now = time.monotonic()
        for upstream in self._runtime.upstreams.all:
            in_flight.add_metric([upstream.name], upstream.in_flight)
            ready.add_metric([upstream.name], int(upstream.is_ready(now)))
        yield in_flight
        yield ready
        backlog = self._runtime.journal.backlog_bytes
        yield GaugeMetricFamily("tokenfactory_journal_backlog_bytes", "Journal not yet in the database.", backlog)
