"""What a part of a report adds up to, in Python and as the database adds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from django.db import connection

from billing.pricing import format_points

# SQLite's sums end at 63 bits, 9.2 million points: there amounts are summed in two halves.
_HALF = 10**9
_UNIT_COLUMNS = ("input_units", "cache_read_units", "output_units", "page_units", "character_units")
_SUM_COLUMNS = ("requests", "errors", *_UNIT_COLUMNS)
COUNTED = (*_SUM_COLUMNS, "amount_ppt")
"""The columns of a row of sums."""


class Sums(NamedTuple):
    """Tokens, pages and characters are units; the amount is picopoints."""

    requests: int = 0
    errors: int = 0
    input: int = 0
    cache_read: int = 0
    output: int = 0
    page: int = 0
    character: int = 0
    amount_ppt: int = 0

    @classmethod
    def of(cls, parts: Iterable[Sums]) -> Self:
        return cls(*map(sum, zip(*parts, strict=True)))

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read

    @property
    def tokens(self) -> int:
        return self.prompt + self.output

    @property
    def cache_share(self) -> float | None:
        """Part of the prompt that came from the cache, 0 to 1; None without a prompt."""
        return self.cache_read / self.prompt if self.prompt else None

    @property
    def error_share(self) -> float | None:
        return self.errors / self.requests if self.requests else None

    @property
    def points(self) -> str:
        return format_points(self.amount_ppt)

    def without(self, others: Sums) -> Sums:
        return Sums(*(mine - theirs for mine, theirs in zip(self, others, strict=True)))


def sum_columns() -> list[str]:
    """What SQL with parameters selects over rows of sums, for `sums_of` to read; amounts exact beyond 64 bits."""
    if connection.vendor == "sqlite":
        halves = [f"SUM(amount_ppt / {_HALF}) AS high_ppt", f"SUM(amount_ppt %% {_HALF}) AS amount_ppt"]
        return [*(f"SUM({name}) AS {name}" for name in _SUM_COLUMNS), *halves]
    return [*(f"SUM({name})::bigint AS {name}" for name in _SUM_COLUMNS), "SUM(amount_ppt) AS amount_ppt"]


def amount_columns() -> list[str]:
    """Of those the amount alone, for `amount_of` to read."""
    if connection.vendor == "sqlite":
        return [column for column in sum_columns() if column.endswith("_ppt")]
    # A chart has thousands, and a Decimal takes three times as long to become a number as text does.
    return ["SUM(amount_ppt)::text AS amount_ppt"]


def by_amount() -> list[str]:
    """The order of groups over those columns: most points, then most tokens."""
    tokens = "input_units + cache_read_units + output_units DESC"
    if connection.vendor == "sqlite":
        return [f"high_ppt + amount_ppt / {_HALF} DESC", f"amount_ppt %% {_HALF} DESC", tokens]
    return ["amount_ppt DESC", tokens]


def amount_of(row: Sequence[Any]) -> int:
    """Picopoints of one row of `amount_columns`."""
    return int(row[0]) if len(row) == 1 else row[0] * _HALF + row[1]


def sums_of(row: Sequence[Any]) -> Sums:
    """One row of `sum_columns`."""
    *counts, low_ppt = row
    high_ppt = counts.pop() if len(counts) > len(_SUM_COLUMNS) else 0
    return Sums._make((*counts, high_ppt * _HALF + int(low_ppt)))
