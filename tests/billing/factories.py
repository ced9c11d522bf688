"""Records and raters for the tests, by keyword."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Sum

from billing.models import Charge, Rate, Rollup, UsageRecord
from billing.rating import rate_batch

STARTED = datetime(2026, 11, 1, 10, 7, 30, 250_000, tzinfo=UTC)
_ids = itertools.count(1)


def make_record(**changes: Any) -> UsageRecord:
    """A completed chat of team 7: 1,000 prompt tokens of which 400 cached, 200 completion."""
    fields: dict[str, Any] = {
        "id": UUID(int=next(_ids), version=4),
        "team_id": 7,
        "key_id": 3,
        "member_id": 5,
        "model": "DeepSeek-V4-Flash",
        "endpoint": "chat",
        "source": "api",
        "status": 200,
        "outcome": "ok",
        "prompt_tokens": 1_000,
        "cached_tokens": 400,
        "completion_tokens": 200,
        "started_at": STARTED,
    }
    fields |= changes
    return UsageRecord.objects.create(**{"finished_at": fields["started_at"]} | fields)


def make_rate(*, model: str = "DeepSeek-V4-Flash", meter: str, rate: str, effective_from: datetime) -> Rate:
    return Rate.objects.create(model=model, meter=meter, rate=Decimal(rate), effective_from=effective_from)


def rate_all(*, limit: int = 100) -> int:
    total = 0
    while rated := rate_batch(limit):
        total += rated
    return total


def charges_of(record: UsageRecord) -> dict[str, tuple[int, int, int]]:
    rows = Charge.objects.filter(record=record).values_list("meter", "units", "price_ppt", "amount_ppt")
    return {meter: (units, price, amount) for meter, units, price, amount in rows}


def totals() -> dict[str, int]:
    """Sums over all rollups, the ones that are not 0."""
    names = ("requests", "errors", "amount_ppt", "input_units", "cache_read_units", "output_units")
    sums = Rollup.objects.aggregate(**{name: Sum(name) for name in (*names, "page_units", "character_units")})
    return {name: value for name, value in sums.items() if value}
