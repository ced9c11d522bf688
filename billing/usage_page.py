"""What the usage page shows of one choice, read in one moment: report, period before, latencies, what to choose from.

Everything comes from sums; the page of a team with a hundred million requests opens none of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from html import escape
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.functional import Promise
from django.utils.safestring import SafeString

from accounts.models import Team
from billing.buckets import Interval
from billing.charts import SERIES, Chart, Series, stacked_bars
from billing.filter_options import Option, filter_options, options_html
from billing.latency import PERCENTILES, Latency, latencies, latency_rows
from billing.models import Source, UsageRecord
from billing.number_cells import counts, number_cells, sums_cells
from billing.pieces import Summed, whole_pieces
from billing.pricing import format_points
from billing.readings import MODEL_COLUMNS
from billing.report_models import LatencySpan
from billing.reports import Group, GroupBy, Sums, UsageReport
from billing.snapshots import one_moment
from billing.templatetags.reports import change as change_of
from billing.templatetags.reports import seconds
from billing.usage_choice import UsageChoice, days_of

GROUPS_A_PART = 50
ROWS_A_PART = 62
MOST_WAITING = 1_000
_DAYS = ("start", "end", "period", "interval")
_PARTS = ("groups", "rows")


class GroupRow(NamedTuple):
    """`cells` are its numbers; `before` and `change` are empty where there is no period before."""

    label: str
    sums: Sums
    cells: SafeString
    before: str
    change: str
    href: str

    @property
    def html(self) -> str:
        href = escape(self.href)
        change = f'<td class="number" title="{escape(self.before)}">{escape(self.change)}</td>' if self.before else ""
        link = f'<a href="{href}" hx-get="{href}">{escape(self.label)}</a>'
        return f'<tr><th scope="row" class="usage-name">{link}</th>{self.cells}{change}</tr>'


class BucketRow(NamedTuple):
    label: str
    amounts: Sequence[int]
    sums: Sums
    cells: SafeString
    href: str

    @property
    def html(self) -> str:
        off = "" if self.sums.requests else ' class="is-off"'
        link = f'<a href="{escape(self.href)}">{escape(self.label)}</a>'
        return f'<tr{off}><th scope="row" class="nowrap">{link}</th>{self.cells}</tr>'


class TablePart[R: (GroupRow, BucketRow)](NamedTuple):
    """Some rows of a long table, which of how many, and the addresses of those beside."""

    rows: Sequence[R]
    first: int
    last: int
    total: int
    previous: str
    following: str

    @property
    def html(self) -> SafeString:
        """The rows, written at once as the chart's columns are: a template takes its time over each cell."""
        return SafeString("".join(row.html for row in self.rows))


class Filter(NamedTuple):
    """One in force, as a person reads it, and the address without it."""

    label: str | Promise
    value: str
    href: str


class LatencyRow(NamedTuple):
    label: str
    latency: Latency

    @property
    def html(self) -> SafeString:
        first, whole = self.latency
        times = [seconds(time) for one in (first, whole) for time in one.seconds or [None] * len(PERCENTILES)]
        cells = number_cells([*times, *counts([whole.answers])])
        return SafeString(f'<tr><th scope="row">{escape(self.label)}</th>{cells}</tr>')


@dataclass(frozen=True)
class UsagePage:
    """`values` are the parameters of the page's own address; links keep those they do not change."""

    values: Mapping[str, str]
    choice: UsageChoice
    home_zone: str
    report: UsageReport
    before: UsageReport | None
    latency: Latency | None
    latency_rows: Sequence[LatencyRow]
    options: Mapping[GroupBy, Sequence[Option]]
    waiting: int

    # -- the chart and its tables -----------------------------------------------------------------

    @cached_property
    def chart(self) -> Chart:
        return stacked_bars(self.report, before=self.before)

    @property
    def series(self) -> list[tuple[Series, str]]:
        """Each colour, and where the report is narrowed to its group."""
        return [(one, self._narrow(one.group) if one.group else "") for one in self.chart.series]

    @property
    def hits(self) -> SafeString:
        """The chart's columns as links, written at once: there may be hundreds. One of them is in the tab order."""
        top, height = self.chart.top, self.chart.plot_height
        links = (
            f'<a class="chart-hit" href="{escape(self._addresses[hit.bucket])}" tabindex="{0 if place == 0 else -1}">'
            f'<title>{escape(hit.title)}</title><rect x="{hit.x}" y="{top}" width="{hit.width}" height="{height}"/></a>'
            for place, hit in enumerate(self.chart.hits)
        )
        return SafeString("".join(links))

    @cached_property
    def _addresses(self) -> dict[datetime, str]:
        """Where each bucket leads: to itself alone, cut finer; an hour to its requests."""
        query = self.report.query
        if query.interval == Interval.HOUR:
            return {bucket: self._requests_of(bucket) for bucket in self.report.buckets}
        kept = self.address(**dict.fromkeys(_DAYS))
        kept += "&" if len(kept) > 1 else ""
        days = {bucket: days_of(bucket, query.interval, query.zone) for bucket in self.report.buckets}
        return {bucket: f"{kept}start={first}&end={last}" for bucket, (first, last) in days.items()}

    @cached_property
    def groups(self) -> TablePart[GroupRow]:
        report = self.report
        part = _part(self.values, "groups", report.count, GROUPS_A_PART)
        rows = [self._group_row(group) for group in report.groups[part.first - 1 : part.last]]
        return self._table("groups", part, rows)

    def _group_row(self, group: Group) -> GroupRow:
        sums = self.report.by_group[group.key]
        cells = sums_cells(sums, total=self.report.total)
        before = change = ""
        if self.before:
            earlier = self.before.by_group.get(group.key, Sums())
            before, change = earlier.points, change_of(sums.amount_ppt, earlier.amount_ppt)
        return GroupRow(group.label, sums, cells, before, change, self._narrow(group))

    @cached_property
    def rows(self) -> TablePart[BucketRow]:
        """The newest first, a column for each colour."""
        report, chart = self.report, self.chart
        part = _part(self.values, "rows", len(report.buckets), ROWS_A_PART)
        nothing = [0] * len(chart.series)
        rows = [
            self._bucket_row(bucket, chart.amounts.get(bucket, nothing))
            for bucket in report.buckets[::-1][part.first - 1 : part.last]
        ]
        return self._table("rows", part, rows)

    def _bucket_row(self, bucket: datetime, amounts: Sequence[int]) -> BucketRow:
        sums = self.report.by_bucket.get(bucket, Sums())
        texts = [*map(format_points, amounts), *counts([sums.requests, sums.errors]), sums.points]
        return BucketRow(self.chart.names[bucket], amounts, sums, number_cells(texts), self._addresses[bucket])

    def _table[R: (GroupRow, BucketRow)](self, name: str, part: _Part, rows: list[R]) -> TablePart[R]:
        previous = self.address(**{name: str(part.number - 1)}) if part.number > 1 else ""
        following = self.address(**{name: str(part.number + 1)}) if part.last < part.total else ""
        return TablePart(rows, part.first, part.last, part.total, previous, following)

    # -- addresses --------------------------------------------------------------------------------

    def address(self, **changes: str | None) -> str:
        """This page with other parameters; None takes one away. The tables begin at their first parts again."""
        values = {**self.values, **dict.fromkeys(_PARTS), **changes}
        return "?" + urlencode({name: value for name, value in values.items() if value})

    def _narrow(self, group: Group) -> str:
        return self.address(**{self.choice.group_by.value: str(group.key[0])})

    def _requests_of(self, bucket: datetime) -> str:
        query = self.report.query
        ends = (max(bucket, query.start), min(bucket + timedelta(hours=1), query.end))
        start, end = (moment.astimezone(query.zone).isoformat(timespec="minutes") for moment in ends)
        named = {by.value: value for by, value in query.filters.items()}
        return f"{reverse('billing:requests')}?{urlencode({'start': start, 'end': end} | named)}"

    # -- what can be chosen -----------------------------------------------------------------------

    @property
    def filters(self) -> list[Filter]:
        return [
            Filter(by.label, self.report.label_of(by, value), self.address(**{by.value: None}))
            for by, value in self.choice.filters.items()
        ]

    @property
    def choices(self) -> list[tuple[GroupBy, SafeString]]:
        """Each filter and the options of its select."""
        chosen = {by: str(value) for by, value in self.choice.filters.items()}
        return [(by, options_html(options, chosen.get(by))) for by, options in self.options.items()]

    @property
    def has_own_zone(self) -> bool:
        return self.choice.zone.key != self.home_zone

    @property
    def kept_beside_days(self) -> list[tuple[str, str]]:
        return self._kept(*_DAYS)

    @property
    def kept_beside_filters(self) -> list[tuple[str, str]]:
        return self._kept("tz", *GroupBy.values)

    def _kept(self, *besides: str) -> list[tuple[str, str]]:
        """What a form of the page carries along, beside what it asks for itself."""
        return [(name, value) for name, value in self.values.items() if value and name not in {*besides, *_PARTS}]

    @property
    def latency_by(self) -> GroupBy:
        by = self.choice.group_by
        return by if by in MODEL_COLUMNS else GroupBy.MODEL

    @property
    def is_latency_of_all_keys(self) -> bool:
        return not set(self.choice.filters).issubset(MODEL_COLUMNS)


class _Part(NamedTuple):
    """Rows number `first` to `last` of `total`, counted from 1 as parts are."""

    number: int
    first: int
    last: int
    total: int


def _part(values: Mapping[str, str], name: str, total: int, size: int) -> _Part:
    """Which rows the address asks for."""
    number = max(1, min(_wanted(values, name), -(-total // size)))
    return _Part(number, (number - 1) * size + 1, min(number * size, total), total)


def _wanted(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 1


# -- reading ------------------------------------------------------------------------------------


def usage_page(team: Team, choice: UsageChoice, *, values: Mapping[str, str], now: datetime) -> UsagePage:
    """Raises TookTooLong."""
    query, query_before = choice.query(team.pk), choice.query_before(team.pk, now=now)
    with one_moment():
        known = Summed.within(team.pk, query_before.start if query_before else query.start, query.end)
        report = query.overview(drawn=SERIES, listed=_wanted(values, "groups") * GROUPS_A_PART, known=known)
        latency, rows = _latencies(report, known)
        part = _part(values, "groups", report.count, GROUPS_A_PART)
        listed = report.ranked[part.first - 1 : part.last]
        return UsagePage(
            values=values,
            choice=choice,
            home_zone=team.time_zone,
            report=report,
            before=query_before.of_groups(listed, known) if query_before else None,
            latency=latency,
            latency_rows=rows,
            options=filter_options(team, query.used(known), query.filters),
            waiting=UsageRecord.objects.filter(team_id=team.pk, rated_at=None)[: MOST_WAITING + 1].count(),
        )


def _latencies(report: UsageReport, known: Summed) -> tuple[Latency | None, list[LatencyRow]]:
    """Of all that is shown, and by its groups where these are told apart; else by model."""
    query = report.query
    by = query.group_by[0] if query.group_by[0] in MODEL_COLUMNS else GroupBy.MODEL
    parts = whole_pieces(query.start, query.end, known)
    spans = {LatencySpan.MONTH: parts.months, LatencySpan.DAY: parts.days, LatencySpan.QUARTER: parts.quarters}
    less = {LatencySpan.DAY: parts.less_days, LatencySpan.QUARTER: parts.less_quarters}
    named = {by.column: value for by, value in query.filters.items() if by in MODEL_COLUMNS}
    rows = latency_rows(query.team_id, spans, less, by=by.column, named=named)
    found = latencies(rows)
    if not found:
        return None, []
    labels = {source.value: str(source.label) for source in Source} if by == GroupBy.SOURCE else {}
    ordered = sorted(found, key=lambda group: (-found[group].answer.answers, group))
    total = latencies(("", step, first, whole) for _, step, first, whole in rows)[""]
    return total, [LatencyRow(labels.get(group, group), found[group]) for group in ordered[:GROUPS_A_PART]]
