"""What a part of a report adds up to, in Python and as the database adds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from django.db import connection
from django.db.models import F, Sum

from billing.pricing import format_points

# SQLite's sums end at 63 bits, 9.2 million points: there amounts are summed in two halves.
_HALF = 10**9
_UNIT_COLUMNS = ("input_units", "cache_read_units", "output_units", "page_units", "character_units")
_SUM_COLUMNS = ("requests", "errors", *_UNIT_COLUMNS)


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


def summed() -> dict[str, Any]:
    """The annotations that `sums_of` reads, as this database adds exactly."""
    whole = {f"sum_{name}": Sum(name) for name in _SUM_COLUMNS}
    if connection.vendor == "sqlite":
        return whole | {"sum_high": Sum(F("amount_ppt") / _HALF), "sum_low": Sum(F("amount_ppt") % _HALF)}
    return whole | {"sum_low": Sum("amount_ppt")}


def sums_of(row: Mapping[str, Any]) -> Sums:
    amount_ppt = int(row.get("sum_high") or 0) * _HALF + int(row["sum_low"] or 0)
    return Sums(*(int(row[f"sum_{name}"] or 0) for name in _SUM_COLUMNS))._replace(amount_ppt=amount_ppt)
