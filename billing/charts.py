"""The geometry of a stacked bar chart, in SVG units; a template draws it.

Colours are classes (`series-1` … `series-8`), numbers are exact: each segment's title names its points.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django.utils.formats import date_format
from django.utils.translation import gettext

from billing.buckets import Interval
from billing.pricing import format_points
from billing.reports import Group, Sums, UsageReport

WIDTH, HEIGHT = 960, 280
RIGHT, TOP, BOTTOM = 8, 12, 26
PLOT_HEIGHT = HEIGHT - TOP - BOTTOM
# What a digit of an axis label takes, about.
DIGIT_WIDTH = 6.4
SERIES = 8
TICKS = 4
LABELS = 10


class Segment(NamedTuple):
    series: int
    x: str
    y: str
    width: str
    height: str
    title: str


class Mark(NamedTuple):
    """A label on an axis and where it stands."""

    at: str
    text: str


class Series(NamedTuple):
    number: int
    label: str
    sums: Sums


class Chart(NamedTuple):
    title: str
    description: str
    series: tuple[Series, ...]
    segments: tuple[Segment, ...]
    ticks: tuple[Mark, ...]
    labels: tuple[Mark, ...]
    left: int
    width: int = WIDTH
    height: int = HEIGHT
    right_edge: int = WIDTH - RIGHT
    label_y: int = HEIGHT - 8


class _Slots(NamedTuple):
    """The places of the buckets, side by side."""

    left: int
    width: float

    def middle(self, place: int) -> float:
        return self.left + self.width * (place + 0.5)


def nice_step(highest: int, ticks: int = TICKS) -> int:
    """The smallest of 1, 2, 5 × 10ⁿ that reaches `highest` in at most `ticks` steps."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if step * factor * ticks >= highest:
                return step * factor
        step *= 10


def stacked_bars(report: UsageReport) -> Chart:
    """Points by bucket, stacked by group; the smallest groups share the last colour."""
    stacks = _series(report)
    highest = max((sums.amount_ppt for sums in report.by_bucket.values()), default=0)
    step = nice_step(highest)
    top = step * TICKS if highest else step
    ticks = _ticks(top=top, step=step)
    left = 16 + round(DIGIT_WIDTH * max(len(tick.text) for tick in ticks))
    slots = _Slots(left, (WIDTH - RIGHT - left) / max(1, len(report.buckets)))
    return Chart(
        title=gettext("Points over time"),
        description=_description(report),
        series=tuple(series for series, _ in stacks),
        segments=tuple(_segments(report, stacks, slots, top=top)),
        ticks=tuple(ticks),
        labels=tuple(_labels(report, slots)),
        left=left,
    )


def bucket_label(bucket: datetime, report: UsageReport) -> str:
    """A bucket's start by the clock of the report's zone."""
    local = bucket.astimezone(report.query.zone)
    if report.query.interval == Interval.HOUR:
        return f"{date_format(local, 'SHORT_DATE_FORMAT')} {local:%H:%M}"
    if report.query.interval == Interval.MONTH:
        return date_format(local, "YEAR_MONTH_FORMAT")
    return date_format(local, "SHORT_DATE_FORMAT")


def _series(report: UsageReport) -> list[tuple[Series, Sequence[Group]]]:
    groups = report.groups
    shown = groups if len(groups) <= SERIES else groups[: SERIES - 1]
    stacks: list[tuple[Series, Sequence[Group]]] = [
        (Series(number, group.label, report.by_group[group.key]), [group]) for number, group in enumerate(shown, 1)
    ]
    if rest := groups[len(shown) :]:
        sums = Sums.of(report.by_group[group.key] for group in rest)
        label = gettext("%(count)d others") % {"count": len(rest)}
        stacks.append((Series(SERIES, label, sums), rest))
    return stacks


def _description(report: UsageReport) -> str:
    zone = report.query.zone.key
    return gettext(
        "%(points)s points in %(count)d periods, in the time of %(zone)s. The table below has the numbers."
    ) % {
        "points": report.total.points,
        "count": len(report.buckets),
        "zone": zone,
    }


def _segments(
    report: UsageReport, stacks: list[tuple[Series, Sequence[Group]]], slots: _Slots, *, top: int
) -> list[Segment]:
    width = min(48.0, max(1.0, slots.width * 0.72))
    found: list[Segment] = []
    for place, bucket in enumerate(report.buckets):
        if bucket not in report.by_bucket:
            continue
        x = slots.middle(place) - width / 2
        below = 0
        when = bucket_label(bucket, report)
        for series, groups in stacks:
            amount = sum(report.cell(bucket, group).amount_ppt for group in groups)
            if amount:
                height = PLOT_HEIGHT * amount / top
                y = _height_of(below + amount, top)
                title = f"{when} · {series.label}: {format_points(amount)}"
                found.append(Segment(series.number, _number(x), _number(y), _number(width), _number(height), title))
                below += amount
    return found


def _ticks(*, top: int, step: int) -> list[Mark]:
    return [Mark(_number(_height_of(amount, top)), format_points(amount)) for amount in range(0, top + 1, step)]


def _labels(report: UsageReport, slots: _Slots) -> list[Mark]:
    every = -(-len(report.buckets) // LABELS)
    return [
        Mark(_number(slots.middle(place)), _short_label(bucket, report))
        for place, bucket in enumerate(report.buckets)
        if place % every == 0
    ]


def _short_label(bucket: datetime, report: UsageReport) -> str:
    local = bucket.astimezone(report.query.zone)
    if report.query.interval == Interval.HOUR:
        return f"{local:%H:%M}"
    return date_format(local, "YEAR_MONTH_FORMAT" if report.query.interval == Interval.MONTH else "MONTH_DAY_FORMAT")


def _height_of(amount: int, top: int) -> float:
    return TOP + PLOT_HEIGHT * (1 - amount / top)


def _number(value: float) -> str:
    """SVG's own notation, whatever the page's language."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
