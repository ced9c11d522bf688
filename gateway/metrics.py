"""What a web process counts for Prometheus. Labels are bounded: models that are served, endpoints, statuses, gates."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from billing.pricing import PPT_PER_POINT
from gateway.call import Call
from gateway.company import COMPANY
from gateway.ledger_metrics import LedgerMetrics

if TYPE_CHECKING:
    from gateway.runtime import Runtime

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
GAP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)


class Durations:
    """A histogram: how many lay below each of the bounds and above the one before, and their sum."""

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, seconds: float, *, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += times
        self._sum += seconds * times

    def metric(self, name: str, text: str) -> Metric:
        buckets = zip([*map(str, map(float, self._bounds)), "+Inf"], accumulate(self._counts), strict=True)
        return HistogramMetricFamily(name, text, buckets=list(buckets), sum_value=self._sum)


class Counted:
    """Plain numbers: a request adds to a dozen of them, and the event loop is their only writer."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, int]] = Counter()
        # Input not read from a cache, cache reads, output; and picopoints.
        self.tokens: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.spent_ppt: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.first_byte = Durations()
        self.duration = Durations()
        self.chunk_gap = Durations(GAP_SECONDS)


COUNTED = Counted()


def count_call(call: Call, *, spent_ppt: int) -> None:
    counted, model, counts = COUNTED, call.model, call.counts
    counted.calls[call.endpoint, model, call.status] += 1
    if counts.prompt or counts.completion:
        tokens = counted.tokens[model]
        tokens[0] += counts.prompt - counts.cached
        tokens[1] += counts.cached
        tokens[2] += counts.completion
    if spent_ppt:
        counted.spent_ppt[model] += spent_ppt
    now = time.time()
    if call.first_byte_at:
        counted.first_byte.add(max(0.0, call.first_byte_at - call.started_at))
        if call.stream and (gaps := call.output_chunks - 1) > 0:
            # Each of a stream's gaps as the mean of them all: reading the clock at every chunk is what would cost.
            counted.chunk_gap.add(max(0.0, now - call.first_byte_at) / gaps, times=gaps)
    counted.duration.add(max(0.0, now - call.started_at))


def count_refusal(code: str) -> None:
    COUNTED.refusals[code] += 1


def exposition(runtime: Runtime) -> bytes:
    """Everything counted, and what is read when it is asked for."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts())
    registry.register(_State(runtime))
    registry.register(LedgerMetrics())
    return generate_latest(registry)


class _Counts(Collector):
    def collect(self) -> Iterator[Metric]:
        counted = COUNTED
        calls = CounterMetricFamily("tokenfactory_calls", "Finished calls.", labels=["endpoint", "model", "status"])
        for (endpoint, model, status), count in list(counted.calls.items()):
            calls.add_metric([endpoint, model, str(status)], count)
        yield calls
        tokens = CounterMetricFamily("tokenfactory_tokens", "Tokens used.", labels=["model", "meter"])
        for model, counts in list(counted.tokens.items()):
            for meter, count in zip(("input", "cache_read", "output"), counts, strict=True):
                tokens.add_metric([model, meter], count)
        yield tokens
        points = CounterMetricFamily("tokenfactory_points", "Points of finished calls, rounded.", labels=["model"])
        for model, spent_ppt in list(counted.spent_ppt.items()):
            points.add_metric([model], spent_ppt / PPT_PER_POINT)
        yield points
        refusals = CounterMetricFamily("tokenfactory_refusals", "Calls refused by a limit.", labels=["code"])
        for code, count in list(counted.refusals.items()):
            refusals.add_metric([code], count)
        yield refusals
        yield counted.first_byte.metric("tokenfactory_first_byte_seconds", "Time to the first byte of an answer.")
        text = "Time from one chunk of a stream to the next, the mean of each stream for all of its chunks."
        yield counted.chunk_gap.metric("tokenfactory_chunk_gap_seconds", text)
        yield counted.duration.metric("tokenfactory_call_seconds", "Time of whole calls.")


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
        text = "Requests to the gateway that are under way, streams among them."
        yield GaugeMetricFamily("tokenfactory_requests_at_work", text, COMPANY.requests)
        yield GaugeMetricFamily("tokenfactory_streams_at_work", "Streams that are under way.", COMPANY.streams)
        backlog = self._runtime.journal.backlog_bytes
        yield GaugeMetricFamily("tokenfactory_journal_backlog_bytes", "Journal not yet in the database.", backlog)
