"""Prices, the split into meters and the exact display: whole picopoints only."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.models import Meter
from billing.pricing import (
    MAX_PAGE_RATE,
    MAX_PAGES,
    MAX_RATE,
    MAX_TOKENS,
    PPT_PER_POINT,
    Metered,
    RateError,
    Usage,
    charges,
    format_points,
    is_unpriced,
    price_ppt,
    total_ppt,
    units_of,
)

FLASH = {"input": 140_000, "cache_read": 2_800, "output": 280_000}
anything = st.integers() | st.sampled_from([-1, 0, 1, MAX_TOKENS, MAX_TOKENS + 1, 2**63, -(2**63)])


def test_the_meters_are_those_of_the_ledger() -> None:
    assert [meter.value for meter in Metered] == list(Meter.values)


@pytest.mark.parametrize(
    ("rate", "meter", "price"),
    [
        ("0.14", "input", 140_000),
        ("0.0028", "cache_read", 2_800),
        ("0.0007", "cache_read", 700),
        ("0.000001", "output", 1),
        ("0.140000000", "input", 140_000),
        ("1E+1", "input", 10_000_000),
        ("0", "input", 0),
        ("0E-30", "input", 0),
        ("0.035", "character", 35_000),
        ("0.001", "page", 1_000_000_000),
        ("0.000000001", "page", 1_000),
        ("90000", "output", 9 * 10**10),
        ("90", "page", 9 * 10**13),
    ],
)
def test_a_rate_is_a_whole_price(rate: str, meter: str, price: int) -> None:
    assert price_ppt(Decimal(rate), meter=meter) == price


@pytest.mark.parametrize(
    ("rate", "meter", "reason"),
    [
        ("-0.1", "input", "not negative"),
        ("-1E-9", "page", "not negative"),
        ("NaN", "input", "a number"),
        ("sNaN", "input", "a number"),
        ("Infinity", "input", "a number"),
        ("0.0000001", "input", "at most 6 decimals"),
        ("0.1400000000000000000000000000000000001", "input", "at most 6 decimals"),
        ("1E-999999", "input", "at most 6 decimals"),
        ("0.0000000001", "page", "at most 9 decimals"),
        ("90000.000001", "input", "at most 90000"),
        ("1E+999999", "input", "at most 90000"),
        ("90.000000001", "page", "at most 90"),
    ],
)
def test_a_rate_that_is_no_exact_price_is_refused(rate: str, meter: str, reason: str) -> None:
    with pytest.raises(RateError, match=reason):
        price_ppt(Decimal(rate), meter=meter)


def test_the_largest_charge_fits_in_64_bits() -> None:
    assert MAX_TOKENS * price_ppt(Decimal(MAX_RATE), meter="output") < 2**63
    assert MAX_PAGES * price_ppt(Decimal(MAX_PAGE_RATE), meter="page") < 2**63


def test_the_worked_example() -> None:
    usage = Usage(prompt_tokens=1_000, cached_tokens=400, completion_tokens=200)
    parts = charges(units_of(usage, has_cache_rate=True), FLASH)
    assert parts == [
        ("input", 600, 140_000, 84_000_000),
        ("cache_read", 400, 2_800, 1_120_000),
        ("output", 200, 280_000, 56_000_000),
    ]
    assert sum(part.amount_ppt for part in parts) == 141_120_000
    assert format_points(141_120_000) == "0.00014112"


def test_cached_tokens_without_a_rate_of_their_own_are_input() -> None:
    usage = Usage(prompt_tokens=1_000, cached_tokens=400)
    assert units_of(usage, has_cache_rate=False) == {"input": 1_000}


@pytest.mark.parametrize(("cached", "split"), [(-5, {"input": 10}), (10, {"cache_read": 10}), (99, {"cache_read": 10})])
def test_cached_tokens_stay_within_the_prompt(cached: int, split: dict[str, int]) -> None:
    assert units_of(Usage(prompt_tokens=10, cached_tokens=cached), has_cache_rate=True) == split


def test_pages_and_characters_are_their_own_meters() -> None:
    assert units_of(Usage(pages=3, characters=40), has_cache_rate=False) == {"page": 3, "character": 40}


def test_a_meter_without_a_rate_costs_nothing_and_is_said_to_be_unpriced() -> None:
    units = {"input": 10, "output": 5}
    assert charges(units, {"input": 7}) == [("input", 10, 7, 70), ("output", 5, 0, 0)]
    assert is_unpriced(units, {"input": 7})
    assert not is_unpriced(units, {"input": 7, "output": 0})
    assert not is_unpriced({}, {})


@given(prompt=anything, cached=anything, completion=anything, pages=anything, characters=anything, cache=st.booleans())
def test_any_usage_is_split_without_loss(
    prompt: int, cached: int, completion: int, pages: int, characters: int, cache: bool
) -> None:
    units = units_of(Usage(prompt, cached, completion, pages, characters), has_cache_rate=cache)
    assert all(count > 0 for count in units.values())
    assert units.get("input", 0) + units.get("cache_read", 0) == max(0, min(prompt, MAX_TOKENS))
    assert units.get("output", 0) == max(0, min(completion, MAX_TOKENS))
    prices = dict.fromkeys(units, 9 * 10**10)
    assert all(0 <= part.amount_ppt < 2**63 for part in charges(units, prices) if part.meter != "page")


@given(
    units=st.dictionaries(st.sampled_from([*Metered]), st.integers(0, MAX_TOKENS)),
    prices=st.dictionaries(st.sampled_from([*Metered]), st.integers(0, 9 * 10**10)),
)
def test_the_parts_make_the_whole(units: dict[str, int], prices: dict[str, int]) -> None:
    parts = charges(units, prices)
    assert sum(part.amount_ppt for part in parts) == sum(n * prices.get(meter, 0) for meter, n in units.items())
    assert all(part.amount_ppt == part.units * part.price_ppt for part in parts)


@given(
    usage=st.builds(Usage, anything, anything, anything, anything, anything),
    prices=st.dictionaries(st.sampled_from(list(Meter.values)), st.integers(min_value=0, max_value=10**9)),
)
def test_the_quick_total_is_the_sum_of_the_charges(usage: Usage, prices: dict[str, int]) -> None:
    parts = charges(units_of(usage, has_cache_rate="cache_read" in prices), prices)
    assert total_ppt(usage, prices) == sum(part.amount_ppt for part in parts)


@given(st.decimals(min_value=0, max_value=MAX_RATE, places=6, allow_nan=False, allow_infinity=False))
def test_a_million_units_cost_the_rate_exactly(rate: Decimal) -> None:
    assert Decimal(format_points(10**6 * price_ppt(rate, meter="input"))) == rate


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1, "0.000000000001"),
        (PPT_PER_POINT, "1"),
        (10 * PPT_PER_POINT, "10"),
        (1_500_000_000_000, "1.5"),
        (-141_120_000, "-0.00014112"),
        (10**30, "1000000000000000000"),
    ],
)
def test_points_are_shown_to_the_last_digit(amount: int, text: str) -> None:
    assert format_points(amount) == text


@given(st.integers())
def test_the_text_of_an_amount_is_the_amount(amount: int) -> None:
    text = format_points(amount)
    assert "E" not in text
    whole, _, fraction = text.partition(".")
    assert int(whole + fraction.ljust(12, "0")) == amount
    assert not fraction.endswith("0")
