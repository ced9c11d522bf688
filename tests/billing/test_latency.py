"""How long answers took: percentiles from counts, right to within a step, in any zone's days."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from accounts.models import Team
from billing.day_sums import sum_days
from billing.latency import LAST_STEP, Latency, Percentiles, latencies, latency_rows, recount_latencies
from billing.models import UsageRecord
from billing.report_models import LatencyCount, LatencySpan
from tests.billing.factories import make_record, rate_all

MORNING = datetime(2026, 11, 1, 6, 7, 30, tzinfo=UTC)
# A step is 19 %.
WITHIN = 0.19


def answered(seconds: float, *, first: float | None = None, **changes: Any) -> UsageRecord:
    started_at = changes.pop("started_at", MORNING)
    return make_record(
        started_at=started_at,
        finished_at=started_at + timedelta(seconds=seconds),
        first_byte_at=None if first is None else started_at + timedelta(seconds=first),
        stream=first is not None,
        **changes,
    )


def read(
    start: datetime, end: datetime, *, by: str = "model", span: LatencySpan = LatencySpan.QUARTER, **named: Any
) -> dict[str, Latency]:
    return latencies(latency_rows(7, {span: [(start, end)]}, by=by, named=named))


def of_morning(**named: Any) -> dict[str, Latency]:
    return read(MORNING.replace(minute=0, second=0), MORNING + timedelta(hours=1), **named)


@pytest.mark.django_db
def test_percentiles_are_those_of_the_answers_to_within_a_step() -> None:
    chance = random.Random(5)
    taken = [chance.lognormvariate(0, 1) for _ in range(300)]
    for seconds in taken:
        answered(seconds, first=seconds / 10)
    rate_all(limit=70)
    latency = of_morning()["DeepSeek-V4-Flash"]
    assert latency.answer.answers == latency.first_token.answers == 300
    exact = [sorted(taken)[300 * share // 100 - 1] for share in (50, 95, 99)]
    assert latency.answer.seconds == pytest.approx(exact, rel=WITHIN)
    assert latency.first_token.seconds == pytest.approx([seconds / 10 for seconds in exact], rel=WITHIN)


@pytest.mark.django_db
def test_only_good_answers_are_timed_and_only_streams_to_their_first_token() -> None:
    answered(2, first=1)
    answered(2)
    answered(2, first=1, status=502, outcome="error")
    answered(2, first=1, outcome="client_gone")
    rate_all()
    latency = of_morning()["DeepSeek-V4-Flash"]
    assert (latency.answer.answers, latency.first_token.answers) == (2, 2)


@pytest.mark.django_db
def test_models_endpoints_and_sources_are_told_apart() -> None:
    answered(0.1)
    answered(10, model="Slow", source="playground", endpoint="ocr")
    rate_all()
    assert of_morning()["DeepSeek-V4-Flash"].answer.seconds == pytest.approx([0.1] * 3, rel=WITHIN)
    assert of_morning()["Slow"].answer.seconds == pytest.approx([10] * 3, rel=WITHIN)
    assert set(of_morning(by="source")) == {"api", "playground"}
    assert set(of_morning(endpoint="ocr")) == {"Slow"}


@pytest.mark.django_db
@pytest.mark.parametrize("seconds", [-5, 0, 0.0005, 10**6])
def test_odd_times_are_counted_at_the_ends_of_the_scale(seconds: float) -> None:
    answered(seconds)
    rate_all()
    assert LatencyCount.objects.get().step in {0, LAST_STEP}


@pytest.mark.django_db
def test_a_quarter_hour_ends_with_its_last_microsecond() -> None:
    edge = datetime(2026, 11, 1, 6, 15, tzinfo=UTC)
    answered(1, started_at=edge - timedelta(microseconds=1))
    answered(1, started_at=edge)
    rate_all()
    starts = LatencyCount.objects.order_by("starts_at").values_list("starts_at", flat=True)
    assert list(starts) == [edge - timedelta(minutes=15), edge]


@pytest.mark.django_db
def test_counting_again_from_the_records_changes_nothing() -> None:
    for number in range(20):
        answered(number / 7, first=number / 50, started_at=MORNING + timedelta(minutes=7 * number))
    rate_all(limit=3)
    columns = ("starts_at", "model", "endpoint", "source", "step", "first_tokens", "answers")
    before = set(LatencyCount.objects.values_list(*columns))
    LatencyCount.objects.filter(step__gt=20).delete()
    make_record(started_at=MORNING)  # waits to be rated
    day = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
    assert recount_latencies(7, *day) is True
    assert recount_latencies(7, *day) is False
    assert set(LatencyCount.objects.values_list(*columns)) == before


@pytest.mark.django_db
def test_days_and_months_are_summed_of_their_quarters() -> None:
    team = Team.objects.create(pk=7, name="A", time_zone="Asia/Kathmandu")
    for number in range(40):
        answered(1 + number / 7, started_at=MORNING + timedelta(hours=7 * number))
    rate_all()
    sum_days(now=MORNING + timedelta(days=45))
    month = (datetime(2026, 10, 31, 18, 15, tzinfo=UTC), datetime(2026, 11, 30, 18, 15, tzinfo=UTC))
    found = [read(*month, span=span) for span in LatencySpan]
    assert found[0] == found[1] == found[2]
    assert found[0]["DeepSeek-V4-Flash"].answer.answers == 40
    assert team.time_zone == "Asia/Kathmandu"


@pytest.mark.django_db
def test_rebuilding_rollups_counts_latencies_again_and_their_days() -> None:
    Team.objects.create(pk=7, name="A", time_zone="Asia/Kathmandu")
    answered(3)
    rate_all()
    sum_days(now=MORNING + timedelta(days=2))
    LatencyCount.objects.update(answers=9)
    call_command("rebuild_rollups", stdout=StringIO())
    sum_days(now=MORNING + timedelta(days=2))
    for span in (LatencySpan.QUARTER, LatencySpan.DAY):
        assert LatencyCount.objects.get(span=span).answers == 1


def test_what_nobody_waited_for_has_no_percentile() -> None:
    assert Percentiles.of({}) == Percentiles(0, None)
    assert Percentiles.of({4: 0}) == Percentiles(0, None)
