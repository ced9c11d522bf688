"""Periods to the second, and the ledger's own count of what was used in one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from billing.pricing import Usage, total_ppt
from billing.quota import Period, _waiting, period_at, reservation_ppt, rolling_start, used_ppt
from billing.rates import RateCard, load_rates
from tests.billing.factories import STARTED, make_rate, make_record, rate_all

EXAMPLE_PPT = 141_120_000
SHANGHAI, NEW_YORK, KATHMANDU = ZoneInfo("Asia/Shanghai"), ZoneInfo("America/New_York"), ZoneInfo("Asia/Kathmandu")
DAY = timedelta(days=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("kind", "zone", "now", "start", "end"),
    [
        ("day", SHANGHAI, utc(2026, 11, 29, 15, 59, 59), utc(2026, 11, 28, 16), utc(2026, 11, 29, 16)),
        ("day", SHANGHAI, utc(2026, 11, 29, 16), utc(2026, 11, 29, 16), utc(2026, 11, 30, 16)),
        ("day", KATHMANDU, utc(2026, 11, 29, 18, 14), utc(2026, 11, 28, 18, 15), utc(2026, 11, 29, 18, 15)),
        # 25 hours, then 23.
        ("day", NEW_YORK, utc(2026, 11, 1, 12), utc(2026, 11, 1, 4), utc(2026, 11, 2, 5)),
        ("day", NEW_YORK, utc(2026, 3, 8, 12), utc(2026, 3, 8, 5), utc(2026, 3, 9, 4)),
        ("month", SHANGHAI, utc(2026, 12, 31, 15, 59), utc(2026, 11, 30, 16), utc(2026, 12, 31, 16)),
        ("month", NEW_YORK, utc(2026, 11, 29), utc(2026, 11, 1, 4), utc(2026, 12, 1, 5)),
    ],
)
def test_days_and_months_begin_at_the_zones_midnight(
    kind: str, zone: ZoneInfo, now: datetime, start: datetime, end: datetime
) -> None:
    assert period_at(kind, zone, now) == (start, end)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "start"),
    [
        (None, STARTED),
        (STARTED - timedelta(hours=23, minutes=59), STARTED - timedelta(hours=23, minutes=59)),
        (STARTED - DAY, STARTED),
    ],
)
def test_a_rolling_window_is_a_day_from_its_first_request(first: datetime | None, start: datetime) -> None:
    assert period_at("rolling", SHANGHAI, STARTED, first_charged_at=first) == (start, start + DAY)


@pytest.mark.django_db
def test_a_request_is_priced_as_rating_will_charge_it() -> None:
    load_rates()
    card = RateCard.load()
    assert total_ppt(Usage(1_000, 400, 200), card.prices("DeepSeek-V4-Flash", STARTED)) == EXAMPLE_PPT
    assert total_ppt(Usage(1_000, 400, 200), card.prices("d3", STARTED)) == 35_000_000
    assert total_ppt(Usage(1_000), card.prices("unknown", STARTED)) == 0
    prices = card.prices("DeepSeek-V4-Flash", STARTED)
    reserved = reservation_ppt(prices, prompt_tokens_estimate=1_000, max_output_tokens=4_096)
    assert reserved == 1_000 * 140_000 + 4_096 * 280_000


@pytest.mark.django_db
def test_rated_and_waiting_records_of_the_period_are_counted_once() -> None:
    load_rates()
    day = period_at("day", SHANGHAI, STARTED)
    make_record()
    make_record(started_at=day.start)
    make_record(started_at=day.end)
    make_record(started_at=day.start - timedelta(microseconds=1))
    make_record(team_id=8)
    make_record(key_id=4)
    before = used_ppt(team_id=7, period=day)
    # A counter begins with it: a Decimal, equal as it is, would not do.
    assert (type(before), before) == (int, 3 * EXAMPLE_PPT)
    rate_all()
    assert used_ppt(team_id=7, period=day) == before
    make_record(key_id=4)
    make_record(status=503)
    make_record(source="dedicated")
    assert used_ppt(team_id=7, period=day) == 4 * EXAMPLE_PPT
    assert used_ppt(team_id=7, key_id=4, period=day) == 2 * EXAMPLE_PPT
    assert used_ppt(team_id=99, period=day) == 0


@pytest.mark.django_db
def test_however_many_wait_they_are_read_as_one_row_for_each_price() -> None:
    """Admission looks every half minute, in the process that serves streams."""
    load_rates()
    make_rate(model="d3", meter="input", rate="7", effective_from=STARTED)
    day = period_at("day", SHANGHAI, STARTED)
    card = RateCard.load()
    counts = [Usage(1_000 * n, 400 * n, n, n % 3, -n) for n in range(30)] + [
        Usage(10**12, 10**12, 10**12, 10**9, 10**9)
    ]
    models = ("DeepSeek-V4-Flash", "d3", "unknown")
    instants = (STARTED - timedelta(minutes=1), STARTED, STARTED + timedelta(minutes=1))
    records = [(model, at, usage) for model in models for at in instants for usage in counts]
    for model, at, usage in records:
        make_record(model=model, started_at=at, **usage._asdict())
    expected = sum(total_ppt(usage, card.prices(model, at)) for model, at, usage in records)
    assert used_ppt(team_id=7, period=day) == expected
    assert len(_waiting({"team_id": 7}, day)) == 4
    rate_all()
    assert used_ppt(team_id=7, period=day) == expected


@pytest.mark.django_db
def test_the_edges_of_a_rolling_window_are_exact() -> None:
    load_rates()
    period = Period(STARTED, STARTED + DAY)
    instants = [STARTED - timedelta(seconds=1), STARTED, STARTED + DAY - timedelta(seconds=1), STARTED + DAY]
    for instant in instants:
        make_record(started_at=instant)
    rate_all()
    assert used_ppt(team_id=7, period=period) == 2 * EXAMPLE_PPT
    assert used_ppt(team_id=7, period=Period(STARTED, STARTED + timedelta(seconds=1))) == EXAMPLE_PPT


@pytest.mark.django_db
def test_a_lost_rolling_window_is_found_again_from_the_ledger() -> None:
    load_rates()
    assert rolling_start(team_id=7, now=STARTED) is None
    # A window, another right behind it, a pause of two days, and two windows more.
    first = STARTED - timedelta(days=6)
    third = first + timedelta(days=4, hours=1)
    for instant in [
        first,
        first + timedelta(hours=23),
        first + timedelta(hours=25),
        third,
        third + timedelta(hours=30),
    ]:
        make_record(started_at=instant)
    rate_all()
    assert rolling_start(team_id=7, now=first + timedelta(hours=24)) is None
    assert rolling_start(team_id=7, now=first + timedelta(hours=26)) == first + timedelta(hours=25)
    assert rolling_start(team_id=7, now=third + timedelta(hours=23)) == third
    assert rolling_start(team_id=7, now=third + timedelta(hours=31)) == third + timedelta(hours=30)
    make_record(started_at=third + timedelta(hours=60))
    assert rolling_start(team_id=7, now=third + timedelta(hours=60)) == third + timedelta(hours=60)
