"""A usage report as CSV and JSON: complete, the screen's own query, harmless in a spreadsheet.

A report is written while it is read, a stretch of buckets at a time, so its size costs neither memory nor a connection
that waits for a slow reader. The total is that of the lines, whatever was rated meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import batched
from typing import Any

import orjson

from accounts.spreadsheet import Cells, csv_text
from billing.reports import Group, GroupBy, ReportRow, Sums, UsageQuery, UsageReport

LINES_A_CHUNK = 500
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

type InThread = Callable[[Callable[[], str | None]], Awaitable[str | None]]
"""Runs what reads the database where that is allowed."""


async def streamed(parts: Iterator[str], *, in_thread: InThread) -> AsyncIterator[str]:
    while (text := await in_thread(partial(next, parts, None))) is not None:
        yield text


class ReportStream:
    """Every row of a report, bucket by bucket, read as it is gone through; `total` is what has come so far."""

    def __init__(self, query: UsageQuery) -> None:
        self.query = query
        self.total = Sums()

    def rows(self) -> Iterator[ReportRow]:
        groups = {group.key: group for group in self.query.ranked()}
        for part in self.query.parts(len(groups)):
            report = part.run()
            # Used for the first time meanwhile.
            groups |= {group.key: group for group in report.named(report.by_group.keys() - groups.keys())}
            for row in report.rows(groups.values()):
                self.total = Sums.of((self.total, row.sums))
                yield row


# -- CSV ----------------------------------------------------------------------------------------


def csv_parts(query: UsageQuery) -> Iterator[str]:
    stream = ReportStream(query)
    for some in batched(_lines(query, stream.rows(), lambda: stream.total), LINES_A_CHUNK, strict=False):
        yield csv_text(some)


def lines(report: UsageReport) -> Iterator[Cells]:
    """Header, a line for each bucket and group, and the total."""
    return _lines(report.query, report.rows(), lambda: report.total)


def _lines(query: UsageQuery, rows: Iterable[ReportRow], total: Callable[[], Sums]) -> Iterator[Cells]:
    zone, by = query.zone, query.group_by
    yield ["start", "time_zone", *_group_names(by), *_SUM_NAMES]
    for row in rows:
        yield [_local(row.bucket, query), zone.key, *_group_cells(by, row.group), *_sum_cells(row.sums)]
    yield ["total", zone.key, *_group_cells(by, None), *_sum_cells(total())]


def _local(at: datetime, query: UsageQuery) -> str:
    return at.astimezone(query.zone).isoformat()


def _group_names(group_by: tuple[GroupBy, ...]) -> list[str]:
    """A key's or member's name can change; its number is there as well."""
    names = ["group"] if len(group_by) > 1 else [by.value for by in group_by if by.is_number]
    return [by.column for by in group_by] + names


def _group_cells(group_by: tuple[GroupBy, ...], group: Group | None) -> list[str | int]:
    if group is None:
        return [""] * len(_group_names(group_by))
    named = [group.label] if len(group_by) > 1 or group_by[0].is_number else []
    return [*group.key, *named]


def _sum_cells(sums: Sums) -> list[str | int]:
    return [*sums[:-1], sums.points]


# -- JSON ---------------------------------------------------------------------------------------


def json_parts(query: UsageQuery, *, unrated: int) -> Iterator[str]:
    """One document, whose numbers are those of the CSV; points are exact decimal strings."""
    head = {
        "object": "usage",
        "unit": "pts",
        "start": _local(query.start, query),
        "end": _local(query.end, query),
        "interval": query.interval.value,
        "time_zone": query.zone.key,
        "group_by": [by.value for by in query.group_by],
        "filters": {by.value: value for by, value in query.filters.items()},
    }
    stream = ReportStream(query)
    before = _json(head)[:-1] + ',"buckets":['
    for bucket, rows in _by_bucket(stream.rows()):
        results = [_result(query, row.group, row.sums) for row in rows if row.group]
        yield before + _json({"start": _local(bucket, query), "results": results})
        before = ","
    yield f'],"total":{_json(token_counts(stream.total))},"unrated":{unrated}}}'


def _by_bucket(rows: Iterable[ReportRow]) -> Iterator[tuple[datetime, list[ReportRow]]]:
    here: list[ReportRow] = []
    for row in rows:
        if here and here[0].bucket != row.bucket:
            yield here[0].bucket, here
            here = []
        here.append(row)
    if here:
        yield here[0].bucket, here


def _result(query: UsageQuery, group: Group, sums: Sums) -> dict[str, Any]:
    columns = dict(zip((by.value for by in query.group_by), group.key, strict=True))
    return {**columns, "name": group.label, **token_counts(sums)}


def token_counts(sums: Sums) -> dict[str, Any]:
    """Sums in the words of the API."""
    return {
        "requests": sums.requests,
        "errors": sums.errors,
        "prompt_tokens": sums.prompt,
        "cached_tokens": sums.cache_read,
        "completion_tokens": sums.output,
        "total_tokens": sums.tokens,
        "pages": sums.page,
        "characters": sums.character,
        "points": sums.points,
    }


def _json(document: Any) -> str:
    return orjson.dumps(document).decode()
