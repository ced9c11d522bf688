"""A usage report as CSV: complete, the screen's own query, harmless in a spreadsheet."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Iterable, Iterator
from io import StringIO
from itertools import batched

from billing.reports import Group, GroupBy, Sums, UsageReport

LINES_A_CHUNK = 500
# A cell that begins with one of these may be run as a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_SUM_NAMES = (
    "requests",
    "errors",
    "input_tokens",
    "cache_read_tokens",
    "output_tokens",
    "pages",
    "characters",
    "points",
)
_BY_NUMBER = frozenset({GroupBy.KEY, GroupBy.MEMBER})

type Cells = Iterable[str | int]


def safe_cell(value: str | int) -> str:
    """Text that no spreadsheet takes for a formula."""
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


async def csv_chunks(report: UsageReport) -> AsyncIterator[str]:
    for some in batched(lines(report), LINES_A_CHUNK, strict=False):
        text = StringIO()
        csv.writer(text).writerows([safe_cell(cell) for cell in line] for line in some)
        yield text.getvalue()


def lines(report: UsageReport) -> Iterator[Cells]:
    """Header, a line for each bucket and group, and the total."""
    query = report.query
    yield ["start", "time_zone", *_group_names(query.group_by), *_SUM_NAMES]
    for row in report.rows():
        start = row.bucket.astimezone(query.zone).isoformat()
        yield [start, query.zone.key, *_group_cells(query.group_by, row.group), *_sum_cells(row.sums)]
    yield ["total", query.zone.key, *_group_cells(query.group_by, None), *_sum_cells(report.total)]


def _group_names(group_by: tuple[GroupBy, ...]) -> list[str]:
    """A key's or member's name can change; its number is there as well."""
    names = ["group"] if len(group_by) > 1 else [by.value for by in group_by if by in _BY_NUMBER]
    return [by.column for by in group_by] + names


def _group_cells(group_by: tuple[GroupBy, ...], group: Group | None) -> list[str | int]:
    if group is None:
        return [""] * len(_group_names(group_by))
    named = [group.label] if len(group_by) > 1 or group_by[0] in _BY_NUMBER else []
    return [*group.key, *named]


def _sum_cells(sums: Sums) -> list[str | int]:
    return [*sums[:-1], sums.points]
