"""What Prometheus reads of the ledger."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from billing.rates import load_rates
from gateway import ledger_metrics
from gateway.ledger_metrics import Comparisons, LedgerMetrics
from tests.billing.factories import make_record, rate_all


@pytest.fixture(autouse=True)
def comparisons(monkeypatch: pytest.MonkeyPatch) -> Comparisons:
    fresh = Comparisons()
    monkeypatch.setattr(ledger_metrics, "COMPARISONS", fresh)
    return fresh


def samples() -> dict[str, float]:
    return {
        "".join([sample.name, *sample.labels.values()]): sample.value
        for metric in LedgerMetrics().collect()
        for sample in metric.samples
    }


@pytest.mark.django_db
def test_what_waits_is_counted_and_its_age_told() -> None:
    load_rates()
    make_record(started_at=timezone.now() - timedelta(hours=1))
    rate_all()
    assert samples()["tokenfactory_unrated_records"] == 0
    assert samples()["tokenfactory_unrated_age_seconds"] == 0
    for minutes in (5, 90):
        make_record(started_at=timezone.now() - timedelta(minutes=minutes))
    assert samples()["tokenfactory_unrated_records"] == 2
    assert samples()["tokenfactory_unrated_age_seconds"] == pytest.approx(90 * 60, abs=60)


@pytest.mark.django_db
def test_a_counter_that_is_corrected_is_told(comparisons: Comparisons, caplog: pytest.LogCaptureFixture) -> None:
    comparisons.note(0)
    comparisons.note(0)
    assert caplog.text == ""
    comparisons.note(2 * 10**12)
    comparisons.note(10**12)
    assert "2 points off the ledger" in caplog.text
    found = samples()
    assert (found["tokenfactory_quota_comparisons_totalequal"], found["tokenfactory_quota_drift_points_total"]) == (
        2,
        3,
    )
    assert found["tokenfactory_quota_comparisons_totaldiffered"] == 2


@pytest.mark.django_db
def test_without_the_database_the_rest_is_told() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_usagerecord RENAME TO away")
    assert "tokenfactory_unrated_records" not in samples()
    assert "tokenfactory_quota_drift_points_total" in samples()
