"""Records become charges and sums, each once, whatever happens around it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.db.models import Sum

from accounts.keys import issue_key
from accounts.models import ApiKey, Team
from billing import rating
from billing.models import Charge, Rollup, SetAside, UsageRecord
from billing.rates import load_rates
from billing.rating import rate_batch, rate_waiting
from tests.billing.factories import STARTED, charges_of, make_rate, make_record, rate_all, totals

pytestmark = pytest.mark.django_db
EXAMPLE_PPT = 141_120_000


@pytest.fixture(autouse=True)
def rate_card(request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("transactional_db" if "transactional_db" in request.fixturenames else "db")
    load_rates()


def test_a_record_becomes_a_charge_a_meter_and_sums() -> None:
    record = make_record()
    assert rate_batch() == 1
    assert charges_of(record) == {
        "input": (600, 140_000, 84_000_000),
        "cache_read": (400, 2_800, 1_120_000),
        "output": (200, 280_000, 56_000_000),
    }
    rollup = Rollup.objects.get()
    assert rollup.quarter_at == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert (rollup.team_id, rollup.key_id, rollup.member_id) == (7, 3, 5)
    assert (rollup.model, rollup.endpoint, rollup.source) == ("DeepSeek-V4-Flash", "chat", "api")
    assert totals() == {
        "requests": 1,
        "amount_ppt": EXAMPLE_PPT,
        "input_units": 600,
        "cache_read_units": 400,
        "output_units": 200,
    }
    record.refresh_from_db()
    assert record.rated_at is not None
    assert not record.unpriced


def test_rating_again_changes_nothing() -> None:
    make_record()
    rate_all()
    before = totals()
    assert rate_batch() == 0
    assert totals() == before


def test_later_records_add_to_the_same_cell() -> None:
    for _ in range(3):
        make_record()
        rate_all()
    assert Rollup.objects.count() == 1
    assert totals()["amount_ppt"] == 3 * EXAMPLE_PPT


def test_cells_are_quarter_hours_of_the_start() -> None:
    for minute, second in [(0, 0), (14, 59), (15, 0), (59, 59)]:
        make_record(started_at=STARTED.replace(minute=minute, second=second, microsecond=999_999))
    rate_all()
    cells = Rollup.objects.order_by("quarter_at").values_list("quarter_at__minute", "requests")
    assert list(cells) == [(0, 2), (15, 1), (45, 1)]


def test_the_oldest_wait_the_shortest() -> None:
    late = make_record(started_at=STARTED + timedelta(hours=1))
    early = make_record()
    assert rate_batch(1) == 1
    assert charges_of(early)
    assert not charges_of(late)


@pytest.mark.parametrize(
    ("changes", "is_charged", "is_failed"),
    [
        ({"outcome": "client_gone"}, True, False),
        ({"outcome": "stopped"}, True, False),
        ({"outcome": "error"}, True, True),
        ({"outcome": "interrupted"}, True, True),
        ({"outcome": "interrupted", "status": 0}, False, True),
        ({"status": 299}, True, False),
        ({"status": 199}, False, True),
        ({"status": 300}, False, True),
        ({"outcome": "error", "status": 400}, False, True),
        ({"status": 503}, False, True),
    ],
)
def test_whatever_a_2xx_answer_delivered_is_charged_and_every_request_counted(
    changes: dict[str, Any], is_charged: bool, is_failed: bool
) -> None:
    record = make_record(**changes)
    rate_all()
    assert bool(charges_of(record)) is is_charged
    assert totals().get("amount_ppt", 0) == (EXAMPLE_PPT if is_charged else 0)
    assert totals()["requests"] == 1
    assert totals().get("errors", 0) == int(is_failed)


def test_the_rate_in_force_when_the_request_began_counts() -> None:
    change = STARTED + timedelta(minutes=1)
    make_rate(meter="input", rate="1", effective_from=change)
    before, after = make_record(), make_record(started_at=change)
    rate_all()
    assert charges_of(before)["input"] == (600, 140_000, 84_000_000)
    assert charges_of(after)["input"] == (600, 1_000_000, 600_000_000)


def test_a_later_rate_rewrites_nothing() -> None:
    record = make_record()
    rate_all()
    before = charges_of(record)
    make_rate(meter="input", rate="1", effective_from=STARTED - timedelta(days=1))
    rate_all()
    assert charges_of(record) == before


def test_cached_tokens_without_a_rate_are_charged_as_input() -> None:
    record = make_record(model="d3")
    rate_all()
    assert charges_of(record) == {"input": (1_000, 35_000, 35_000_000), "output": (200, 0, 0)}
    record.refresh_from_db()
    assert not record.unpriced


def test_pages_and_characters_are_charged() -> None:
    tokens = {"prompt_tokens": 0, "cached_tokens": 0, "completion_tokens": 0}
    pages = make_record(model="MinerU2.5-Pro", endpoint="ocr", pages=12, **tokens)
    speech = make_record(model="OmniVoice", endpoint="speech", characters=4_096, **tokens)
    rate_all()
    assert charges_of(pages) == {"page": (12, 1_000_000_000, 12_000_000_000)}
    assert charges_of(speech) == {"character": (4_096, 35_000, 143_360_000)}
    assert (totals()["page_units"], totals()["character_units"]) == (12, 4_096)


def test_a_model_without_a_rate_is_recorded_at_nothing_and_flagged() -> None:
    record = make_record(model="house-model")
    rate_all()
    assert charges_of(record) == {"input": (1_000, 0, 0), "output": (200, 0, 0)}
    assert totals() == {"requests": 1, "input_units": 1_000, "output_units": 200}
    record.refresh_from_db()
    assert record.unpriced


def test_a_teams_own_endpoint_counts_units_at_no_price() -> None:
    record = make_record(source="dedicated")
    rate_all()
    assert charges_of(record) == {"input": (600, 0, 0), "cache_read": (400, 0, 0), "output": (200, 0, 0)}
    record.refresh_from_db()
    assert not record.unpriced


def test_counts_that_no_upstream_can_mean_are_limited() -> None:
    record = make_record(prompt_tokens=2**62, cached_tokens=-5, completion_tokens=-1)
    rate_all()
    assert charges_of(record) == {"input": (10**8, 140_000, 14 * 10**12)}


def test_a_record_that_cannot_be_rated_does_not_hold_up_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    """Its sum has no room left in 64 bits."""
    good = [make_record() for _ in range(6)]
    bad = make_record(team_id=66, started_at=STARTED - timedelta(hours=1))
    cell = {name: getattr(bad, name) for name in ("team_id", "key_id", "member_id", "model", "endpoint", "source")}
    full = Rollup.objects.create(quarter_at=datetime(2026, 11, 1, 9, tzinfo=UTC), amount_ppt=2**63 - 1, **cell)
    assert rate_all(limit=3) == 7
    assert Charge.objects.filter(record__in=good).aggregate(Sum("amount_ppt")) == {"amount_ppt__sum": 6 * EXAMPLE_PPT}
    assert not charges_of(bad)
    bad.refresh_from_db()
    assert bad.rated_at is not None
    assert bad.unpriced
    full.refresh_from_db()
    assert (full.requests, full.amount_ppt, full.input_units) == (1, 2**63 - 1, 0)
    aside = SetAside.objects.get()
    assert aside.record_id == bad.id
    assert aside.reason.startswith(("DataError: ", "IntegrityError: "))
    assert str(bad.id) in caplog.text


def test_a_batch_whose_sum_has_no_room_is_rated_in_parts(caplog: pytest.LogCaptureFixture) -> None:
    """Together they are more than a cell holds, alone the first of them is not."""
    make_rate(model="gold", meter="input", rate="90000", effective_from=STARTED)
    first, second = (
        make_record(model="gold", prompt_tokens=10**8, cached_tokens=0, completion_tokens=0) for _ in range(2)
    )
    assert rate_all() == 2
    assert charges_of(first) == {"input": (10**8, 9 * 10**10, 9 * 10**18)}
    assert SetAside.objects.get().record_id == second.id
    assert totals()["requests"] == 2
    assert totals()["amount_ppt"] == 9 * 10**18


def test_a_charge_that_has_no_room_in_a_sum_is_set_aside_alone() -> None:
    for meter in ("input", "output"):
        make_rate(model="gold", meter=meter, rate="90000", effective_from=STARTED)
    bad = make_record(model="gold", prompt_tokens=10**8, cached_tokens=0, completion_tokens=10**8)
    make_record()
    assert rate_all() == 2
    assert SetAside.objects.get().record_id == bad.id
    assert totals()["amount_ppt"] == EXAMPLE_PPT
    assert totals()["requests"] == 2


def test_a_record_delivered_again_after_its_removal_is_not_charged_twice() -> None:
    record = make_record()
    rate_all()
    fields = {name: getattr(record, name) for name in ("id", "model", "started_at")}
    UsageRecord.objects.all().delete()
    make_record(**fields)
    make_record()
    assert rate_all() == 2
    assert totals()["requests"] == 2
    assert totals()["amount_ppt"] == 2 * EXAMPLE_PPT
    assert not UsageRecord.objects.filter(unpriced=True).exists()


def test_a_database_in_trouble_leaves_the_batch_for_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record()

    def fail(*_args: Any, **_options: Any) -> None:
        raise OperationalError("server closed the connection")

    with monkeypatch.context() as broken:
        broken.setattr(rating, "settle_oldest", fail)
        with pytest.raises(OperationalError):
            rate_batch()
    assert not Charge.objects.exists()
    record.refresh_from_db()
    assert record.rated_at is None
    assert rate_batch() == 1


def test_a_keys_last_use_is_the_latest_of_its_requests() -> None:
    team = Team.objects.create(name="A", time_zone="UTC")
    used, idle = (issue_key(team=team, created_by=None, name=name).key for name in "ab")
    for minutes in (5, 9, 0):
        make_record(key_id=used.pk, started_at=STARTED + timedelta(minutes=minutes))
    make_record(key_id=0, started_at=STARTED + timedelta(hours=1))
    assert not rate_waiting(max_batches=9, limit=2)
    assert not rate_waiting(max_batches=9, limit=2)
    assert ApiKey.objects.get(pk=used.pk).last_used_at == STARTED + timedelta(minutes=9)
    assert ApiKey.objects.get(pk=idle.pk).last_used_at is None
    make_record(key_id=used.pk)
    assert rate_waiting(max_batches=1, limit=1)
    assert ApiKey.objects.get(pk=used.pk).last_used_at == STARTED + timedelta(minutes=9)


@pytest.mark.django_db(transaction=True)
def test_raters_beside_each_other_rate_each_record_once(transactional_db: None) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time, and the tests' database lives in one connection")
    models = ["DeepSeek-V4-Flash", "Qwen3.8-27B", "GLM-5.3-Flash"]
    for number in range(300):
        make_record(model=models[number % 3], key_id=number % 5)
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work() -> None:
        try:
            start.wait()
            rate_all(limit=7)
        except BaseException as error:  # noqa: BLE001 -- handed to the test's own thread
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A rater that finds all rows locked by others stops early; what is left is the next one's.
    rate_all()
    assert failures == []
    assert totals()["requests"] == 300
    assert Charge.objects.count() == 900
    # 100 requests each at 141.12, 35.28 and 282.24 millionths of a point.
    assert totals()["amount_ppt"] == 100 * (141_120_000 + 35_280_000 + 282_240_000)
    assert totals()["amount_ppt"] == Charge.objects.aggregate(total=Sum("amount_ppt"))["total"]
