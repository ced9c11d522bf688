"""What holds for any requests and any rates, in whatever order they come."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from billing.models import Charge, Correction, Rate, Repricing, Rollup, UsageRecord
from billing.pricing import METERS, Part, Usage, total_ppt
from billing.quota import Period, used_ppt
from billing.rates import RateCard
from billing.rating import rate_batch
from billing.reconciliation import reconcile
from billing.repricing import Priced, price
from billing.request_log import amounts_of
from gateway.usage import read_usage
from tests.billing.factories import make_rate, make_record, rate_all

MORNING = datetime(2026, 11, 1, 6, tzinfo=UTC)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = Period(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC))
QUICK = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])

counts = st.integers(-3, 5_000) | st.sampled_from([-(2**63), 2**63 - 1, 10**8, 10**8 + 1])
rates = st.decimals(0, 90_000, places=6, allow_nan=False, allow_infinity=False)
requests = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["priced", "half-priced", "unknown"]),
        "key_id": st.integers(0, 2),
        "status": st.sampled_from([200, 206, 400, 503, 0]),
        "outcome": st.sampled_from(["ok", "error", "client_gone", "stopped", "interrupted"]),
        "source": st.sampled_from(["api", "playground", "dedicated"]),
        "prompt_tokens": counts,
        "cached_tokens": counts,
        "completion_tokens": counts,
        "pages": st.integers(-1, 100),
        "characters": st.integers(-1, 100),
        "minute": st.integers(0, 24 * 60 - 1),
    }
)
# Any history of any meter, with moments that requests begin at.
card_rows = st.lists(
    st.tuples(
        st.sampled_from(["priced", "half-priced"]),
        st.sampled_from(METERS),
        st.decimals(0, 9, places=6, allow_nan=False, allow_infinity=False),
        st.integers(-1, 24 * 60),
    ),
    max_size=12,
    unique_by=lambda row: (row[0], row[1], row[3]),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
usage_names = st.sampled_from(
    [
        "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "reasoning_tokens",
        "prompt_tokens_details", "completion_tokens_details", "cached_tokens", "image_tokens", "multimodal_tokens",
        "image", "prompt_cache_hit_tokens",
    ]
)  # fmt: skip
usages = json_values | st.dictionaries(
    usage_names, json_values | st.dictionaries(usage_names, json_values, max_size=4), max_size=8
)


def enter_rates() -> None:
    for meter, rate in [("input", "0.14"), ("cache_read", "0.0028"), ("output", "0.28"), ("page", "0.001")]:
        make_rate(model="priced", meter=meter, rate=rate, effective_from=MORNING - timedelta(days=9))
    make_rate(model="half-priced", meter="input", rate="3", effective_from=MORNING - timedelta(days=9))
    make_rate(model="priced", meter="input", rate="0.5", effective_from=NOON)


def put(some: list[dict[str, Any]], order: list[int]) -> None:
    for number in order:
        fields = dict(some[number])
        started_at = DAY.start + timedelta(minutes=fields.pop("minute"))
        make_record(id=UUID(int=number + 1, version=4), started_at=started_at, **fields)


def ledger() -> tuple[Any, ...]:
    names = [field.name for field in Rollup._meta.fields if field.name != "id"]
    charges = Charge.objects.values_list("record_id", "meter", "units", "price_ppt", "amount_ppt")
    return set(charges), set(Rollup.objects.values_list(*names))


def clear() -> None:
    for model in (Correction, Repricing, Charge, Rollup, UsageRecord):
        model.objects.all().delete()


class LedgerProperties(TestCase):
    @QUICK
    @given(st.lists(requests, min_size=1, max_size=12), st.randoms(use_true_random=False))
    def test_the_order_of_arrival_and_the_batches_change_nothing(
        self, some: list[dict[str, Any]], chance: random.Random
    ) -> None:
        enter_rates()
        put(some, list(range(len(some))))
        rate_all()
        first = ledger()
        assert list(reconcile()) == []
        clear()
        order = list(range(len(some)))
        chance.shuffle(order)
        for number in order:
            put(some, [number])
            if chance.random() < 0.4:
                rate_batch(1)
        waiting = used_ppt(team_id=7, period=DAY)
        rate_all()
        assert ledger() == first
        assert used_ppt(team_id=7, period=DAY) == waiting

    @QUICK
    @given(st.lists(requests, min_size=1, max_size=12), card_rows)
    def test_the_database_charges_what_python_works_out(
        self, some: list[dict[str, Any]], rows: list[tuple[str, str, Decimal, int]]
    ) -> None:
        """`price` is what repricing goes by, and its parts make the total that admission reckons with."""
        for model, meter, rate, minute in rows:
            make_rate(model=model, meter=meter, rate=str(rate), effective_from=DAY.start + timedelta(minutes=minute))
        put(some, list(range(len(some))))
        records = [Priced(*row) for row in UsageRecord.objects.values_list(*Priced._fields)]
        rate_all()
        card = RateCard.load()
        for record in records:
            due = price(record, card)
            booked = Charge.objects.filter(record_id=record.id).values_list(*Part._fields)
            assert sorted(booked) == sorted(due.parts)
            assert UsageRecord.objects.get(id=record.id).unpriced is due.unpriced
            if due.parts and record.source != "dedicated":
                total = total_ppt(Usage(*record[-5:]), card.prices(record.model, record.started_at))
                assert total == sum(part.amount_ppt for part in due.parts)

    @QUICK
    @given(st.lists(requests, min_size=1, max_size=12))
    def test_the_parts_make_the_whole_and_nothing_is_negative(self, some: list[dict[str, Any]]) -> None:
        enter_rates()
        put(some, list(range(len(some))))
        rate_all()
        amounts = list(Charge.objects.values_list("amount_ppt", flat=True))
        cells = list(Rollup.objects.values_list("amount_ppt", "input_units", "output_units", "requests"))
        assert all(amount >= 0 for amount in amounts)
        assert all(value >= 0 for cell in cells for value in cell)
        assert sum(amounts) == sum(cell[0] for cell in cells) == used_ppt(team_id=7, period=DAY)
        assert sum(cell[3] for cell in cells) == len(some)
        assert sum(amounts_of(list(UsageRecord.objects.values_list("id", flat=True))).values()) == sum(amounts)

    @QUICK
    @given(st.lists(requests, min_size=1, max_size=8), rates, rates)
    def test_repriced_sums_are_those_of_a_ledger_charged_so_from_the_start(
        self, some: list[dict[str, Any]], new: Decimal, late: Decimal
    ) -> None:
        enter_rates()
        put(some, list(range(len(some))))
        rate_all()
        make_rate(model="priced", meter="output", rate=str(new), effective_from=MORNING)
        make_rate(model="unknown", meter="input", rate=str(late), effective_from=MORNING)
        call_command("reprice", "--from", "2026-11-01", "--to", "2026-11-02", stdout=StringIO())
        assert list(reconcile()) == []
        repriced = ledger()[1]
        call_command("rebuild_rollups", stdout=StringIO())
        assert ledger()[1] == repriced
        clear()
        put(some, list(range(len(some))))
        rate_all()
        assert ledger()[1] == repriced

    @QUICK
    @given(usages)
    def test_any_usage_object_is_read_and_never_costs_less_than_nothing(self, usage: Any) -> None:
        counts = read_usage(usage)
        assert min(counts.prompt, counts.cached, counts.completion, counts.reasoning, counts.image) >= 0
        assert counts.cached <= counts.prompt
        card = RateCard([("m", meter, Decimal("0.5"), MORNING) for meter in ("input", "cache_read", "output")])
        assert total_ppt(Usage(counts.prompt, counts.cached, counts.completion), card.prices("m", NOON)) >= 0


@pytest.mark.django_db
def test_a_rate_changed_at_noon_prices_the_morning_by_the_old_one() -> None:
    enter_rates()
    tokens = {"model": "priced", "prompt_tokens": 1_000_000, "cached_tokens": 0, "completion_tokens": 0}
    for started_at in [MORNING, NOON - timedelta(microseconds=1), NOON, NOON + timedelta(hours=3)]:
        make_record(started_at=started_at, **tokens)
    rate_all()
    amounts = Charge.objects.order_by("record__started_at").values_list("amount_ppt", flat=True)
    assert list(amounts) == [140_000_000_000, 140_000_000_000, 500_000_000_000, 500_000_000_000]
    assert Rate.objects.filter(model="priced", meter="input").count() == 2
