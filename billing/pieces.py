"""A period taken apart: months and days that are summed already, and the stretches that quarter hours have to fill.

A span is taken where it lies in one bucket of the report as a whole, so each moment is read once, from one place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple, Self

from billing.day_sums import Span, summed_spans
from billing.models import SummedDay
from billing.report_models import SummedMonth

HALF_DAY_HOURS = 12
_HALF_DAY = timedelta(hours=HALF_DAY_HOURS)


class Summed(NamedTuple):
    """What that a period touches is summed: start → end, ascending."""

    months: Mapping[datetime, datetime]
    days: Mapping[datetime, datetime]

    @classmethod
    def within(cls, team_id: int, start: datetime, end: datetime) -> Self:
        return cls(*summed_spans(team_id, start, end, SummedMonth, SummedDay))


class Pieces(NamedTuple):
    """Stretches, ascending, each a whole number of its kind; those that touch are one."""

    months: list[Span]
    days: list[Span]
    quarters: list[Span]
    less_days: list[Span] = []
    less_quarters: list[Span] = []
    """What is to be taken away again from the months and days."""


def whole_pieces(start: datetime, end: datetime, summed: Summed) -> Pieces:
    """A period that is not cut. A day or month of which most is wanted is taken whole, less what lies beside."""
    period, less_quarters = _widened((start, end), summed.days)
    period, less_days = _widened(period, summed.months, made_of=summed.days)
    return pieces(period, summed)._replace(less_days=less_days, less_quarters=less_quarters)


def _widened(
    period: Span, spans: Mapping[datetime, datetime], *, made_of: Mapping[datetime, datetime] | None = None
) -> tuple[Span, list[Span]]:
    """The period with the spans at its ends made whole, and what it has too much by that: whole parts, where named."""
    start, end = first, last = period
    may_begin, may_end = made_of is None or start in made_of, made_of is None or end in made_of.values()
    less: list[Span] = []
    for begins, ends in spans.items():
        if may_begin and begins < start < ends <= end and start - begins < ends - start:
            less.append((begins, start))
            first = begins
        elif may_end and start <= begins < end < ends and ends - end < end - begins:
            less.append((end, ends))
            last = ends
    return (first, last), less


def cut_pieces(edges: Sequence[datetime], summed: Summed) -> dict[int, Pieces]:
    """The period cut at its edges, by the hours that a moment of a piece is moved by to lie in its bucket.

    Another zone's days lie across the edges. A day of which most is wanted is taken whole, less what lies beside: it
    may begin before its bucket, and what is taken away lie before or behind. As that is less than half a day, and
    the bucket more, half a day leads into it.
    """
    found = {hours: Pieces([], [], [], [], []) for hours in (0, HALF_DAY_HOURS, -HALF_DAY_HOURS)}
    starts, days = sorted(summed.days.keys() | summed.months.keys()), sorted(summed.days.items())
    for start, end in pairwise(edges):
        if summed.days.get(start) == end:
            _append(found[0].days, start, end)
            continue
        first, last = _across(start, end, days)
        if first < start:
            _append(found[HALF_DAY_HOURS].less_quarters, first, start)
        if end < last:
            _append(found[-HALF_DAY_HOURS].less_quarters, end, last)
        at = first
        while at < last:
            at = _take(found[HALF_DAY_HOURS if at < start else 0], at, last, summed, starts)
    return found


def _across(start: datetime, end: datetime, days: Sequence[Span]) -> Span:
    """A bucket, widened to the days at its ends of which more lies in it than beside."""
    first, last = start, end
    if days and end - start >= _HALF_DAY:
        begins, ends = _begun_before(start, days)
        if begins < start < ends <= end and start - begins < min(_HALF_DAY, ends - start):
            first = begins
        begins, ends = _begun_before(end, days)
        if start <= begins < end < ends and ends - end < min(_HALF_DAY, end - begins):
            last = ends
    return first, last


def _begun_before(at: datetime, days: Sequence[Span]) -> Span:
    """The last of them that did, if any."""
    return days[max(0, bisect_left(days, (at, at)) - 1)]


def pieces(edges: Sequence[datetime], summed: Summed) -> Pieces:
    """The period between the first and the last edge, cut so that no piece crosses an edge between."""
    found = Pieces([], [], [])
    starts = sorted(summed.days.keys() | summed.months.keys())
    for start, end in pairwise(edges):
        at = start
        while at < end:
            at = _take(found, at, end, summed, starts)
    return found


def _take(found: Pieces, at: datetime, end: datetime, summed: Summed, starts: Sequence[datetime]) -> datetime:
    """Put away what begins at a moment, the longest piece there is; returns where it ends."""
    for kind, spans in ((found.months, summed.months), (found.days, summed.days)):
        if until := _whole(spans, at, end):
            _append(kind, at, until)
            return until
    until = _next(at, end, summed, starts)
    _append(found.quarters, at, until)
    return until


def _whole(spans: Mapping[datetime, datetime], at: datetime, end: datetime) -> datetime | None:
    until = spans.get(at)
    return until if until and until <= end else None


def _next(at: datetime, end: datetime, summed: Summed, starts: Sequence[datetime]) -> datetime:
    """Where the next month or day begins that is over before the end; else the end."""
    for place in range(bisect_right(starts, at), len(starts)):
        start = starts[place]
        if start >= end:
            break
        if _whole(summed.days, start, end) or _whole(summed.months, start, end):
            return start
    return end


def _append(kind: list[Span], start: datetime, end: datetime) -> None:
    if kind and kind[-1][1] == start:
        kind[-1] = (kind[-1][0], end)
    else:
        kind.append((start, end))


def common(stretches: Sequence[Span], others: Mapping[datetime, datetime]) -> tuple[list[Span], list[Span]]:
    """The stretches' parts that lie in the other spans, and those that do not."""
    inside: list[Span] = []
    outside: list[Span] = []
    ordered = sorted(others.items())
    for start, end in stretches:
        at = start
        for begins, ends in ordered[max(0, bisect_left(ordered, (start, start)) - 1) :]:
            if begins >= end:
                break
            first, last = max(begins, at), min(ends, end)
            if first < last:
                if at < first:
                    _append(outside, at, first)
                _append(inside, first, last)
                at = last
        if at < end:
            _append(outside, at, end)
    return inside, outside
