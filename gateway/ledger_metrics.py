"""What Prometheus is told of the ledger: how much waits to be rated and since when, and how far the quota counters of
this process's callers were from it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from django.db import DatabaseError
from django.utils import timezone
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from billing.models import UsageRecord
from billing.pricing import PPT_PER_POINT, format_points

log = logging.getLogger("gateway")
# A backlog beyond this is one, however long exactly: counting it at each scrape would only add to it.
MOST_COUNTED = 100_000


class Comparisons:
    """How often a counter was held against the ledger, and by how much it was corrected in all."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.drift_ppt = 0

    def note(self, drift_ppt: int) -> None:
        self.outcomes["differed" if drift_ppt else "equal"] += 1
        if drift_ppt:
            self.drift_ppt += drift_ppt
            log.warning("a quota counter was %s points off the ledger and is corrected", format_points(drift_ppt))


COMPARISONS = Comparisons()


class LedgerMetrics(Collector):
    def collect(self) -> Iterator[Metric]:
        yield from self._waiting()
        compared = CounterMetricFamily(
            "tokenfactory_quota_comparisons", "Quota counters held against the ledger.", labels=["outcome"]
        )
        for outcome in ("equal", "differed"):
            compared.add_metric([outcome], COMPARISONS.outcomes[outcome])
        yield compared
        yield CounterMetricFamily(
            "tokenfactory_quota_drift_points",
            "Points by which quota counters were corrected, up or down.",
            COMPARISONS.drift_ppt / PPT_PER_POINT,
        )

    def _waiting(self) -> Iterator[Metric]:
        waiting = UsageRecord.objects.filter(rated_at=None).order_by("started_at")
        try:
            oldest_at = waiting.values_list("started_at", flat=True).first()
            count = waiting[:MOST_COUNTED].count()
        except DatabaseError:
            # Said by the lack of them, and by /readyz.
            return
        yield GaugeMetricFamily("tokenfactory_unrated_records", f"Records to be rated, {MOST_COUNTED} at most.", count)
        age_seconds = (timezone.now() - oldest_at).total_seconds() if oldest_at else 0.0
        yield GaugeMetricFamily("tokenfactory_unrated_age_seconds", "Since the oldest of them began.", age_seconds)
