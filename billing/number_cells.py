"""Cells of numbers, written at once: a page has a thousand of them, and a template takes its time over each."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.formats import get_format
from django.utils.safestring import SafeString

from billing.pricing import format_points
from billing.sums import Sums


def number_cells(texts: Iterable[str]) -> SafeString:
    """The texts are digits and their separators; nothing a person typed."""
    return SafeString("".join(f'<td class="number">{text}</td>' for text in texts))


def counts(numbers: Iterable[int]) -> list[str]:
    """Whole numbers as the reader's language groups them."""
    separator = str(get_format("THOUSAND_SEPARATOR"))
    return [f"{number:,}".replace(",", separator) for number in numbers]


def decimal(number: float, places: int = 0) -> str:
    """Rounded, as the reader's language writes it."""
    return f"{number:.{places}f}".replace(".", str(get_format("DECIMAL_SEPARATOR")))


def sums_cells(sums: Sums, *, total: Sums) -> SafeString:
    """Requests, errors, units and points; pages and characters only where the total has any."""
    units = [sums.requests, sums.errors, sums.input, sums.cache_read, sums.output]
    units += [sums.page] if total.page else []
    units += [sums.character] if total.character else []
    return number_cells([*counts(units), format_points(sums.amount_ppt)])
