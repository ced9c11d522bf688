"""The geometry of a stacked bar chart, in SVG units; a template draws it.

A path a colour (`series-1` … `series-8`) and one invisible link a bucket, which names its exact points: a chart of 400
buckets stays a light page.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import NamedTuple

from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.translation import get_language, gettext

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
WIDEST_BAR, BAR_SHARE = 48.0, 0.72
THINNEST_BAR = 1.0


class Mark(NamedTuple):
    """A label on an axis and where it stands."""

    at: str
    text: str


class Series(NamedTuple):
    """`group` is None for what the smallest groups come to together."""

    number: int
    label: str
    sums: Sums
    group: Group | None


class Bars(NamedTuple):
    number: int
    path: SafeString


class Hit(NamedTuple):
    """The column of a bucket: what the pointer meets, and what it says."""

    x: str
    width: str
    title: str
    bucket: datetime


class Chart(NamedTuple):
    title: str
    description: str
    series: tuple[Series, ...]
    bars: tuple[Bars, ...]
    before: str
    hits: tuple[Hit, ...]
    ticks: tuple[Mark, ...]
    labels: tuple[Mark, ...]
    names: dict[datetime, str]
    """How each bucket reads."""
    amounts: dict[datetime, list[int]]
    """Picopoints of each series by bucket, where there are any."""
    left: int
    width: int = WIDTH
    height: int = HEIGHT
    right_edge: int = WIDTH - RIGHT
    top: int = TOP
    plot_height: int = PLOT_HEIGHT
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


def stacked_bars(report: UsageReport, *, before: UsageReport | None = None) -> Chart:
    """Points by bucket, stacked by group; the smallest groups share the last colour.

    `before` is the same of the period before, whose buckets are drawn as a line over those of this one.
    """
    series = _series(report)
    amounts = _amounts(report, series)
    earlier = [before.by_bucket.get(bucket, Sums()).amount_ppt for bucket in before.buckets] if before else []
    highest = max((*map(sum, amounts.values()), *earlier), default=0)
    step = nice_step(highest)
    top = step * TICKS if highest else step
    ticks = _ticks(top=top, step=step)
    left = 16 + round(DIGIT_WIDTH * max(len(tick.text) for tick in ticks))
    slots = _Slots(left, (WIDTH - RIGHT - left) / max(1, len(report.buckets)))
    names = {bucket: bucket_label(bucket, report) for bucket in report.buckets}
    return Chart(
        title=gettext("Points over time"),
        description=_description(report),
        series=tuple(series),
        bars=tuple(_bars(report, amounts, slots, top=top)),
        before=_line(earlier[: len(report.buckets)], slots, top=top),
        hits=tuple(_hits(names, series, amounts, earlier, slots)),
        ticks=tuple(ticks),
        labels=tuple(_labels(report, slots)),
        names=names,
        amounts=amounts,
        left=left,
    )


def bucket_label(bucket: datetime, report: UsageReport) -> str:
    """A bucket's start by the clock of the report's zone."""
    local = bucket.astimezone(report.query.zone)
    if report.query.interval == Interval.HOUR:
        return f"{_day_label(local.date(), 'SHORT_DATE_FORMAT', get_language())} {local:%H:%M}"
    name = "YEAR_MONTH_FORMAT" if report.query.interval == Interval.MONTH else "SHORT_DATE_FORMAT"
    return _day_label(local.date(), name, get_language())


@lru_cache(maxsize=4_096)
def _day_label(day: date, name: str, language: str | None) -> str:
    """In the language, which is the current one. A year has many labels, and formatting one takes its time."""
    return date_format(day, name)


def _series(report: UsageReport) -> list[Series]:
    """The largest groups, and what the others come to together."""
    shown = report.groups[: SERIES if report.count <= SERIES else SERIES - 1]
    series = [Series(place, group.label, report.by_group[group.key], group) for place, group in enumerate(shown, 1)]
    if others := report.count - len(shown):
        label = gettext("%(count)d others") % {"count": others}
        sums = report.total.without(Sums.of((Sums(), *(one.sums for one in series))))
        series.append(Series(SERIES, label, sums, None))
    return series


def _amounts(report: UsageReport, series: Sequence[Series]) -> dict[datetime, list[int]]:
    """Each series' by bucket. What is left of a bucket after the groups that are shown is the others'."""
    place_of = {one.group.key: place for place, one in enumerate(series) if one.group}
    amounts = {bucket: [0] * len(series) for bucket in report.buckets if bucket in report.by_bucket}
    for (bucket, key), amount in report.amounts.items():
        if (place := place_of.get(key)) is not None and bucket in amounts:
            amounts[bucket][place] = amount
    if len(place_of) < len(series):
        for bucket, found in amounts.items():
            found[-1] = report.by_bucket[bucket].amount_ppt - sum(found)
    return amounts


def _description(report: UsageReport) -> str:
    return gettext(
        "%(points)s points in %(count)d periods, in the time of %(zone)s. The table below has the numbers."
    ) % {
        "points": report.total.points,
        "count": len(report.buckets),
        "zone": report.query.zone.key,
    }


def _bars(report: UsageReport, amounts: dict[datetime, list[int]], slots: _Slots, *, top: int) -> list[Bars]:
    width = min(WIDEST_BAR, max(THINNEST_BAR, slots.width * BAR_SHARE))
    w, unit, bottom = _number(width), PLOT_HEIGHT / top, TOP + PLOT_HEIGHT
    floor = _number(bottom)
    paths: defaultdict[int, list[str]] = defaultdict(list)
    for place, bucket in enumerate(report.buckets):
        x, below, foot = _number(slots.middle(place) - width / 2), 0, floor
        for number, amount in enumerate(amounts.get(bucket, ()), 1):
            if amount:
                below += amount
                # As `_number` writes: a year by day has thousands of these.
                head = f"{bottom - unit * below:.5g}"
                paths[number].append(f"M{x} {foot}V{head}h{w}V{foot}z")
                foot = head
    return [Bars(number, SafeString("".join(parts))) for number, parts in sorted(paths.items())]


def _line(amounts: Sequence[int], slots: _Slots, *, top: int) -> str:
    """A step a bucket."""
    width = _number(slots.width)
    steps: list[str] = []
    for place, amount in enumerate(amounts):
        x, y = _number(slots.left + slots.width * place), _number(_height_of(amount, top))
        steps.append(f"{'L' if steps else 'M'}{x} {y}h{width}")
    return "".join(steps)


def _hits(
    names: dict[datetime, str],
    series: Sequence[Series],
    amounts: dict[datetime, list[int]],
    earlier: Sequence[int],
    slots: _Slots,
) -> list[Hit]:
    total_of, before_of = _total_line(), _before_line()
    width = _number(slots.width)
    labels = [f"{one.label}: " for one in series]
    hits = []
    for place, (bucket, name) in enumerate(names.items()):
        found = amounts.get(bucket, ())
        lines = [label + format_points(amount) for label, amount in zip(labels, found, strict=False) if amount]
        lines = [name, *lines, total_of(sum(found))]
        if place < len(earlier):
            lines.append(before_of(earlier[place]))
        hits.append(Hit(_number(slots.left + slots.width * place), width, "\n".join(lines), bucket))
    return hits


def _total_line() -> Callable[[int], str]:
    text = gettext("Total: %(points)s")
    return lambda amount_ppt: text % {"points": format_points(amount_ppt)}


def _before_line() -> Callable[[int], str]:
    text = gettext("Period before: %(points)s")
    return lambda amount_ppt: text % {"points": format_points(amount_ppt)}


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
    """SVG's own notation, whatever the page's language, to a hundredth of a unit or finer."""
    return f"{value:.5g}"
