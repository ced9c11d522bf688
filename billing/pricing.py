"""Picopoints: what a unit costs, what a request used, what that makes. Whole numbers, no database.

1 point = 10¹² ppt. A rate is points per million units (points a page for pages), so one unit's price is a
whole number of ppt, and so is every charge. The caps below keep units × price inside a signed 64-bit integer:
10⁸ tokens × 9·10¹⁰ ppt and 10⁵ pages × 9·10¹³ ppt are both 9·10¹⁸ < 2⁶³.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

POINT_DECIMALS = 12
PPT_PER_POINT = 10**POINT_DECIMALS
MAX_TOKENS = 10**8
MAX_PAGES = 10**5
# Points per million units, and points per page.
MAX_RATE = 90_000
MAX_PAGE_RATE = 90
RATE_DECIMALS = 6
PAGE_RATE_DECIMALS = 9


class Metered(StrEnum):
    """What is charged for."""

    INPUT = "input"
    CACHE_READ = "cache_read"
    OUTPUT = "output"
    PAGE = "page"
    CHARACTER = "character"


METERS = tuple(meter.value for meter in Metered)


class RateError(ValueError):
    """A rate that cannot be charged exactly; the message says why, for the person who typed it."""


class Usage(NamedTuple):
    """A record's raw counts, as the upstream reported them; anything an upstream can invent is accepted."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    pages: int = 0
    characters: int = 0


class Part(NamedTuple):
    """One meter's share of a charge."""

    meter: str
    units: int
    price_ppt: int
    amount_ppt: int


def price_ppt(rate: Decimal, *, meter: str) -> int:
    """Picopoints for one unit. Raises `RateError` for a rate that is no exact price."""
    is_page = meter == Metered.PAGE
    decimals, ceiling = (PAGE_RATE_DECIMALS, MAX_PAGE_RATE) if is_page else (RATE_DECIMALS, MAX_RATE)
    if not rate.is_finite():
        raise RateError("a rate is a number")
    if rate < 0:
        raise RateError("a rate is not negative")
    if rate > ceiling:
        raise RateError(f"a rate of {meter} is at most {ceiling}")
    scaled = _scaled(rate, decimals=decimals)
    if scaled is None:
        raise RateError(f"a rate of {meter} has at most {decimals} decimals")
    # The last decimal a rate may have is exactly 1 ppt a token, or 1,000 ppt a page.
    return scaled * (PPT_PER_POINT // 10**decimals if is_page else 1)


def _scaled(rate: Decimal, *, decimals: int) -> int | None:
    """rate × 10^decimals if that is whole. By digits: Decimal's own arithmetic would round after 28 of them."""
    _, digits, exponent = rate.as_tuple()
    number = int("".join(map(str, digits)))
    shift = int(exponent) + decimals
    while shift < 0 and number and number % 10 == 0:
        number, shift = number // 10, shift + 1
    if number == 0:
        return 0
    return number * 10**shift if shift >= 0 else None


def units_of(usage: Usage, *, has_cache_rate: bool) -> dict[str, int]:
    """Split raw counts into the meters charged, none counted twice; meters without units are left out.

    Cached tokens are part of the prompt, thinking is part of the completion. Without a cache-read rate
    the cached part is charged as input.
    """
    prompt = _within(usage.prompt_tokens, MAX_TOKENS)
    cached = _within(usage.cached_tokens, prompt) if has_cache_rate else 0
    counts = (
        prompt - cached,
        cached,
        _within(usage.completion_tokens, MAX_TOKENS),
        _within(usage.pages, MAX_PAGES),
        _within(usage.characters, MAX_TOKENS),
    )
    return {meter: count for meter, count in zip(METERS, counts, strict=True) if count}


def charges(units: Mapping[str, int], prices: Mapping[str, int]) -> list[Part]:
    """Each meter at its price; a meter that has none costs nothing (and makes the record unpriced)."""
    return [Part(meter, count, price := prices.get(meter, 0), count * price) for meter, count in units.items() if count]


def total_ppt(usage: Usage, prices: Mapping[str, int]) -> int:
    """The sum of a record's charges, without its parts: what admission reckons with at each call."""
    prompt, cached, completion, pages, characters = usage
    prompt = _within(prompt, MAX_TOKENS)
    counts = (
        prompt,
        _within(cached, prompt),
        _within(completion, MAX_TOKENS),
        _within(pages, MAX_PAGES),
        _within(characters, MAX_TOKENS),
    )
    return sum_ppt(counts, prices)


def sum_ppt(counts: tuple[int, ...], prices: Mapping[str, int]) -> int:
    """Of counts in the order of `Usage` and within their limits, one record's or added up over many."""
    prompt, cached, completion, pages, characters = counts
    price = prices.get
    input_ppt = price("input", 0)
    total = prompt * input_ppt + completion * price("output", 0)
    if cached:
        total += cached * (price("cache_read", input_ppt) - input_ppt)
    if pages or characters:
        total += pages * price("page", 0) + characters * price("character", 0)
    return total


def is_unpriced(units: Mapping[str, int], prices: Mapping[str, int]) -> bool:
    return any(meter not in prices for meter in units)


def format_points(amount_ppt: int) -> str:
    """The exact number of points, without exponent or idle zeros: 141_120_000 → "0.00014112"."""
    digits = str(amount_ppt)
    if len(digits) < POINT_DECIMALS + 2:
        digits = digits.zfill(POINT_DECIMALS + (2 if amount_ppt < 0 else 1))
    return f"{digits[:-POINT_DECIMALS]}.{digits[-POINT_DECIMALS:]}".rstrip("0").rstrip(".")


def _within(count: int, ceiling: int) -> int:
    if count < 0:
        return 0
    return count if count < ceiling else ceiling
