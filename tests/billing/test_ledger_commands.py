"""reconcile, rebuild_rollups, reprice and prune: each difference is found, each repair is exact and books its trace."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from django.db import DataError
from django.db.models import F
from django.utils import timezone

from billing import rating, rating_statements
from billing.models import Charge, Correction, PrunedDay, Repricing, Rollup, SetAside, UsageRecord
from billing.rates import load_rates
from billing.reconciliation import reconcile
from billing.repricing import parts_of
from billing.retention import kept_from, prune
from tests.billing.factories import STARTED, make_rate, make_record, rate_all, totals

pytestmark = pytest.mark.django_db
EXAMPLE_PPT = 141_120_000
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def rate_card(db: None, settings: LazySettings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    load_rates()


def run(name: str, *arguments: str) -> str:
    output = StringIO()
    call_command(name, *arguments, stdout=output)
    return output.getvalue()


def differences() -> list[str]:
    return [str(difference) for difference in reconcile()]


def mixed_records() -> list[UsageRecord]:
    records = [make_record(started_at=STARTED + number * HOUR, key_id=number % 3) for number in range(30)]
    records += [
        make_record(team_id=8, model="d3", started_at=STARTED.replace(minute=14, second=59, microsecond=999_999)),
        make_record(team_id=8, model="house-model"),
        make_record(status=503),
        make_record(outcome="error"),
        make_record(source="dedicated"),
        make_record(prompt_tokens=-5, cached_tokens=2**40, completion_tokens=2**40),
    ]
    rate_all()
    return records


# -- reconcile ----------------------------------------------------------------------------------


def test_a_ledger_that_adds_up_shows_no_difference() -> None:
    mixed_records()
    make_record()
    output = run("reconcile")
    assert "No difference." in output
    assert "1 records wait to be rated, the oldest since 2026-11-01 10:07:30; 0 set aside, 1 unpriced." in output


def test_a_rollup_that_differs_is_named_with_its_requests() -> None:
    record = mixed_records()[0]
    Rollup.objects.filter(quarter_at=datetime(2026, 11, 1, 10, tzinfo=UTC), key_id=0).update(
        amount_ppt=F("amount_ppt") + 1
    )
    with pytest.raises(CommandError, match="differences"):
        run("reconcile")
    assert any(str(record.id) in text and "rollup 2026-11-01 10:00 team 7" in text for text in differences())
    assert any(text.startswith("all charges come to") for text in differences())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"amount_ppt": F("amount_ppt") - 1}, "a charge is not units × price:"),
        ({"units": F("units") + 1}, "charges are not those of the record's counts:"),
    ],
)
def test_a_charge_that_was_edited_is_named(change: dict[str, Any], said: str) -> None:
    record = mixed_records()[3]
    Charge.objects.filter(record=record, meter="output").update(**change)
    assert f"{said} {record.id}" in differences()


def test_a_record_without_its_charges_and_a_charge_of_a_failure_are_named() -> None:
    lost, failed = make_record(), make_record(status=500)
    rate_all()
    Charge.objects.filter(record=lost).update(record_id=failed.id)
    found = differences()
    assert f"charges are not those of the record's counts: {lost.id}" in found
    assert f"charges are not those of the record's counts: {failed.id}" in found


def test_a_record_that_vanished_is_a_difference() -> None:
    record = mixed_records()[5]
    UsageRecord.objects.filter(id=record.id).delete()
    assert any("but records and charges nothing" in text for text in differences())


def test_records_that_the_database_refused_are_a_difference(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "rejected.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    assert differences() == [f"2 records were refused by the database and lie in {tmp_path}/journal/rejected.jsonl"]


def test_days_can_be_named() -> None:
    mixed_records()
    Rollup.objects.filter(quarter_at__lt=datetime(2026, 11, 2, tzinfo=UTC)).update(requests=0)
    assert "No difference." in run("reconcile", "--from", "2026-11-02")
    with pytest.raises(CommandError):
        run("reconcile", "--to", "2026-11-01")


# -- rebuild_rollups ----------------------------------------------------------------------------


def test_rebuilding_restores_what_was_lost_and_changes_nothing_else() -> None:
    mixed_records()
    columns = [field.name for field in Rollup._meta.fields if field.name != "id"]
    before = set(Rollup.objects.values_list(*columns))
    assert "0 sums put right" in run("rebuild_rollups")
    assert set(Rollup.objects.values_list(*columns)) == before
    Rollup.objects.filter(key_id=1).delete()
    Rollup.objects.filter(key_id=2).update(input_units=7, requests=9)
    Rollup.objects.create(quarter_at=STARTED.replace(minute=0, second=0, microsecond=0), team_id=7, model="made up")
    run("rebuild_rollups")
    assert set(Rollup.objects.values_list(*columns)) == before
    assert differences() == []


# -- reprice ------------------------------------------------------------------------------------


PERIOD = ("--from", "2026-11-01", "--to", "2026-11-03")


def test_an_unpriced_request_is_charged_once_its_rate_is_entered() -> None:
    record = make_record(model="house-model")
    rate_all()
    make_rate(model="house-model", meter="input", rate="1", effective_from=STARTED - HOUR)
    make_rate(model="house-model", meter="output", rate="2", effective_from=STARTED - HOUR)
    shown = run("reprice", *PERIOD, "--dry-run")
    assert "team 7 house-model: 1 requests, 0 → 0.0014 points (+0.0014)" in shown
    assert "nothing was booked" in shown
    assert not Correction.objects.exists()
    run("reprice", *PERIOD, "--by", "mei", "--reason", "rate came late")
    assert totals()["amount_ppt"] == 1_400_000_000
    record.refresh_from_db()
    assert not record.unpriced
    repricing = Repricing.objects.get()
    assert (repricing.created_by, repricing.reason) == ("mei", "rate came late")
    assert differences() == []


def test_a_repricing_leaves_charges_alone_and_books_the_difference_once() -> None:
    record = make_record()
    rate_all()
    charges = set(Charge.objects.values_list("record_id", "meter", "units", "price_ppt", "amount_ppt", "created_at"))
    make_rate(meter="output", rate="1", effective_from=STARTED - timedelta(minutes=1))
    assert "(+0.000144)" in run("reprice", *PERIOD)
    assert "Difference: 0 points" in run("reprice", *PERIOD)
    assert (
        set(Charge.objects.values_list("record_id", "meter", "units", "price_ppt", "amount_ppt", "created_at"))
        == charges
    )
    correction = Correction.objects.get()
    assert (correction.units, correction.price_ppt) == (200, 1_000_000)
    assert (correction.units_delta, correction.amount_delta_ppt) == (0, 144_000_000)
    assert totals()["amount_ppt"] == EXAMPLE_PPT + 144_000_000
    assert parts_of([record.id])[record.id]["output"].amount_ppt == 200_000_000
    assert Repricing.objects.count() == 1
    assert differences() == []


def test_a_cache_rate_that_appears_moves_units_from_input() -> None:
    make_record(model="d3")
    rate_all()
    make_rate(model="d3", meter="cache_read", rate="0.001", effective_from=STARTED - HOUR)
    run("reprice", *PERIOD, "--model", "d3")
    assert totals()["input_units"] == 600
    assert totals()["cache_read_units"] == 400
    assert totals()["amount_ppt"] == 600 * 35_000 + 400 * 1_000
    assert differences() == []
    run("rebuild_rollups")
    assert totals()["amount_ppt"] == 600 * 35_000 + 400 * 1_000


def test_other_models_and_times_keep_their_price() -> None:
    make_record(model="d3")
    make_record(started_at=STARTED - timedelta(days=1))
    make_record(started_at=datetime(2026, 11, 3, tzinfo=UTC))
    rate_all()
    make_rate(model="d3", meter="input", rate="1", effective_from=STARTED - HOUR)
    make_rate(meter="input", rate="1", effective_from=STARTED - timedelta(days=2))
    assert "Difference: 0 points" in run("reprice", *PERIOD, "--model", "DeepSeek-V4-Flash")
    with pytest.raises(CommandError, match="the period ends before it begins"):
        run("reprice", "--from", "2026-11-03", "--to", "2026-11-01")


def test_a_record_that_was_set_aside_is_charged_by_a_repricing(monkeypatch: pytest.MonkeyPatch) -> None:
    record = make_record()
    settle = rating_statements.settle_given

    def choke(*arguments: Any, charged: bool = True, **options: Any) -> Any:
        if charged:
            raise DataError("poison")
        return settle(*arguments, charged=charged, **options)

    with monkeypatch.context() as broken:
        broken.setattr(rating, "settle_oldest", choke)
        broken.setattr(rating, "settle_given", choke)
        rate_all()
    aside = SetAside.objects.get()
    assert (aside.record_id, aside.reason) == (record.id, "DataError: poison")
    assert "1 set aside, 1 unpriced" in run("reconcile")
    run("reprice", *PERIOD)
    assert totals()["amount_ppt"] == EXAMPLE_PPT
    assert not SetAside.objects.exists()
    assert differences() == []


# -- prune --------------------------------------------------------------------------------------


def test_pruning_removes_old_requests_and_no_sum() -> None:
    records = mixed_records()
    make_record(started_at=STARTED)
    before, charges = totals(), Charge.objects.count()
    assert prune(datetime(2026, 11, 2, tzinfo=UTC)) == sum(record.started_at.day == 1 for record in records)
    assert (totals(), Charge.objects.count()) == (before, charges)
    assert set(UsageRecord.objects.filter(rated_at__isnull=False).values_list("started_at__day", flat=True)) == {2}
    assert UsageRecord.objects.filter(rated_at=None).count() == 1
    assert differences() == []
    assert prune(datetime(2026, 11, 2, tzinfo=UTC)) == 0
    rate_all()
    assert differences() == []
    prune(datetime(2026, 11, 3, tzinfo=UTC))
    assert not UsageRecord.objects.exists()
    assert differences() == []


def test_a_pruned_day_that_no_longer_adds_up_is_named() -> None:
    mixed_records()
    prune(datetime(2026, 11, 2, tzinfo=UTC))
    Rollup.objects.filter(quarter_at__day=1, key_id=1).delete()
    assert any(text.startswith("rollups of 2026-11-01 team 7:") for text in differences())
    run("rebuild_rollups")
    assert any(text.startswith("rollups of 2026-11-01 team 7:") for text in differences())


def test_pruned_requests_that_come_again_are_not_counted_again() -> None:
    record = make_record()
    rate_all()
    prune(datetime(2026, 11, 2, tzinfo=UTC))
    make_record(id=record.id)
    rate_all()
    assert totals()["requests"] == 1
    assert not UsageRecord.objects.exists()
    assert differences() == []


def test_a_pruned_period_is_not_repriced() -> None:
    make_record()
    rate_all()
    prune(datetime(2026, 11, 2, tzinfo=UTC))
    with pytest.raises(CommandError, match="the requests up to 2026-11-01 are pruned; their charges stand"):
        run("reprice", *PERIOD)


def test_days_are_kept_from_midnight_on() -> None:
    assert kept_from(30, now=STARTED) == datetime(2026, 10, 2, tzinfo=UTC)
    with pytest.raises(CommandError, match="at least 2 days are kept"):
        run("prune", "--keep-days", "1")
    make_record(started_at=timezone.now() - timedelta(days=5))
    make_record(started_at=timezone.now())
    rate_all()
    assert run("prune", "--keep-days", "3", "--dry-run").startswith("1 requests begun before")
    assert UsageRecord.objects.count() == 2
    assert run("prune", "--keep-days", "3").startswith("1 requests begun before")
    assert PrunedDay.objects.get().requests == 1
