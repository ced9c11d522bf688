"""A team's single requests: newest first, one page after the other, however many there are.

Filters cost no index of their own: the rollups say in which quarter hours such requests lie, and only those are looked
into. A time limit ends what would take long all the same, and the page says from where to go on.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, Self
from uuid import UUID

from django.db import models
from django.db.models import F, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from billing.buckets import QUARTER, floor_quarter
from billing.day_sums import summed_days
from billing.models import Charge, Correction, Outcome, Rollup, Sums, UsageRecord
from billing.pieces import Summed, pieces
from billing.readings import MODEL_COLUMNS, GroupBy
from billing.report_models import Level, Summary

PAGE_SIZE = 50
# Quarter hours that are looked into at once: few at first, since most pages are full soon.
FEWEST_QUARTERS, MOST_QUARTERS = 4, 100
# An unfinished search says how far it came.
SEARCH_SECONDS = 2.0
MOST_WAITING = 1_000
FOREVER = datetime(9999, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Status(models.TextChoices):
    """What a reader looks for: how requests ended, or what is particular about their price."""

    OK = "ok", _("Completed")
    ERROR = "error", _("Failed")
    CLIENT_GONE = "client_gone", _("Client left")
    STOPPED = "stopped", _("Stopped")
    INTERRUPTED = "interrupted", _("Interrupted")
    ESTIMATED = "estimated", _("Estimated")
    UNPRICED = "unpriced", _("Unpriced")

    @property
    def condition(self) -> Q:
        if self == Status.ESTIMATED:
            return Q(estimated=True)
        if self == Status.UNPRICED:
            return Q(unpriced=True)
        is_refused = Q(status__lt=200) | Q(status__gte=300)
        if self == Status.ERROR:
            return is_refused | Q(outcome=Outcome.ERROR)
        return Q(outcome=self.value) & ~is_refused if self == Status.OK else Q(outcome=self.value)

    @property
    def is_counted_as_error(self) -> bool:
        """Rollups count these, so they say where there are any."""
        return self in {Status.ERROR, Status.INTERRUPTED}


class Cursor(NamedTuple):
    """The last record of a page; the next page begins below it."""

    started_at: datetime
    id: UUID

    @classmethod
    def parse(cls, text: str) -> Self | None:
        moment, _, id = text.rpartition("_")
        try:
            cursor = cls(datetime.fromisoformat(moment), UUID(id))
        except ValueError:
            return None
        return cursor if cursor.started_at.tzinfo else None

    def __str__(self) -> str:
        return f"{self.started_at.isoformat()}_{self.id.hex}"


@dataclass(frozen=True)
class LogFilter:
    """Which requests: begun from `start` (inclusive) to `end` (exclusive), of these columns, ended so."""

    start: datetime | None = None
    end: datetime | None = None
    columns: Mapping[GroupBy, str | int] = field(default_factory=dict)
    status: Status | None = None

    @property
    def is_narrow(self) -> bool:
        return bool(self.columns or self.status)

    @property
    def is_anywhere(self) -> bool:
        """No sum tells where such requests are: each quarter hour in which there was any request may have some."""
        return not self.columns and not (self.status and self.status.is_counted_as_error)

    @property
    def _named(self) -> dict[str, str | int]:
        return {by.column: value for by, value in self.columns.items()}

    def of_records(self, records: QuerySet[UsageRecord]) -> QuerySet[UsageRecord]:
        found = records.filter(**self._named)
        if self.start:
            found = found.filter(started_at__gte=self.start)
        if self.end:
            found = found.filter(started_at__lt=self.end)
        return found.filter(self.status.condition) if self.status else found

    def of_sums[M: Sums](self, rows: QuerySet[M]) -> QuerySet[M]:
        """Sums in which such requests may be."""
        found = rows.filter(**self._named)
        return found.filter(errors__gt=0) if self.status and self.status.is_counted_as_error else found


class LoggedRequest(NamedTuple):
    record: UsageRecord
    amount_ppt: int


class LogPage(NamedTuple):
    """`older` is the cursor of the next page, empty on the last one. `is_cut` says that time ran out before it."""

    requests: list[LoggedRequest]
    older: str
    is_cut: bool = False


def records_of(team_id: int) -> QuerySet[UsageRecord]:
    return UsageRecord.objects.filter(team_id=team_id)


def log_page(
    team_id: int, *, wanted: LogFilter | None = None, below: Cursor | None = None, size: int = PAGE_SIZE
) -> LogPage:
    wanted = wanted or LogFilter()
    records = wanted.of_records(records_of(team_id)).order_by("-started_at", "-id").defer("usage")
    if below:
        # The first condition is what the index can seek by.
        records = records.filter(started_at__lte=below.started_at).filter(
            Q(started_at__lt=below.started_at) | Q(id__lt=below.id)
        )
    if not wanted.is_narrow:
        return _page(list(records[: size + 1]), size)
    return _searched(team_id, wanted, records, below, size)


def _page(found: list[UsageRecord], size: int) -> LogPage:
    shown = found[:size]
    amounts = amounts_of([record.id for record in shown])
    older = str(Cursor(shown[-1].started_at, shown[-1].id)) if len(found) > size else ""
    return LogPage([LoggedRequest(record, amounts.get(record.id, 0)) for record in shown], older)


def _searched(
    team_id: int, wanted: LogFilter, records: QuerySet[UsageRecord], below: Cursor | None, size: int
) -> LogPage:
    until = time.monotonic() + SEARCH_SECONDS
    found: list[UsageRecord] = []
    for quarters in _quarters(team_id, wanted, below):
        found += records.filter(_within(wanted, quarters))[: size + 1 - len(found)]
        if len(found) > size:
            break
        if time.monotonic() > until:
            # Whatever is older than the last quarter that was looked into.
            place = Cursor(quarters[-1] - MICROSECOND, UUID(int=2**128 - 1))
            return _page(found, size)._replace(older=str(place), is_cut=True)
    return _page(found, size)


def _within(wanted: LogFilter, quarters: Sequence[datetime]) -> Q:
    """The quarters, which are descending, as few stretches: what the database is asked for costs time too."""
    if wanted.is_anywhere:
        # Between them are no other requests.
        return Q(started_at__gte=quarters[-1], started_at__lt=quarters[0] + QUARTER)
    spans: list[tuple[datetime, datetime]] = []
    for at in quarters:
        if spans and spans[-1][0] == at + QUARTER:
            spans[-1] = (at, spans[-1][1])
        else:
            spans.append((at, at + QUARTER))
    return reduce(or_, (Q(started_at__gte=start, started_at__lt=end) for start, end in spans))


def _quarters(team_id: int, wanted: LogFilter, below: Cursor | None) -> Iterator[list[datetime]]:
    """Quarter hours that may hold what is wanted, the newest first, more of them at each step."""
    oldest = records_of(team_id).order_by("started_at").values_list("started_at", flat=True).first()
    if oldest is None:
        return
    first = max(floor_quarter(oldest), floor_quarter(wanted.start or oldest))
    last = min(moment for moment in (wanted.end, below and below.started_at, FOREVER) if moment)
    unrated = _unrated(team_id, wanted)
    sources = _sources(team_id, wanted, first)
    # The quarter in which the last page ended comes first; then each step begins before the last one's end.
    before, count = floor_quarter(last) + QUARTER if last < FOREVER else FOREVER, FEWEST_QUARTERS
    while True:
        rated = {at for source in sources for at in source.filter(at__lt=before)[:count]}
        chosen = sorted(rated | {at for at in unrated if at < before}, reverse=True)[:count]
        if not chosen:
            return
        yield chosen
        before, count = chosen[-1], min(MOST_QUARTERS, count * 4)


def _unrated(team_id: int, wanted: LogFilter) -> set[datetime]:
    """What no rollup has yet."""
    waiting = wanted.of_records(records_of(team_id)).filter(rated_at=None).order_by("-started_at")
    return {floor_quarter(at) for at in waiting.values_list("started_at", flat=True)[:MOST_WAITING]}


def _sources(team_id: int, wanted: LogFilter, first: datetime) -> list[QuerySet[Any, datetime]]:
    """Quarters in which there was something of the kind, descending, each as `at`.

    By model, endpoint and source days that are over have few rows; the rest is what their sums do not hold.
    """
    rollups = wanted.of_sums(Rollup.objects.filter(team_id=team_id, quarter_at__gte=first))
    if not set(wanted.columns).issubset(MODEL_COLUMNS):
        return [_moments(rollups, "quarter_at")]
    summaries = Summary.objects.filter(team_id=team_id, level=Level.MODEL_QUARTER, starts_at__gte=first)
    open_spans = pieces((first, FOREVER), Summed({}, summed_days(team_id, first, FOREVER))).quarters
    is_open = reduce(or_, (Q(quarter_at__gte=start, quarter_at__lt=end) for start, end in open_spans))
    return [_moments(wanted.of_sums(summaries), "starts_at"), _moments(rollups.filter(is_open), "quarter_at")]


def _moments(rows: QuerySet[Any], time: str) -> QuerySet[Any, datetime]:
    moments: QuerySet[Any, datetime] = rows.annotate(at=F(time)).order_by("-at").values_list("at", flat=True).distinct()
    return moments


def amounts_of(record_ids: Sequence[UUID]) -> dict[UUID, int]:
    """What each record came to, corrections included; those that cost nothing may be absent."""
    amounts: defaultdict[UUID, int] = defaultdict(int)
    charged = Charge.objects.filter(record_id__in=record_ids).values_list("record_id", "amount_ppt")
    corrected = Correction.objects.filter(record_id__in=record_ids).values_list("record_id", "amount_delta_ppt")
    for record_id, amount_ppt in charged.union(corrected, all=True):
        amounts[record_id] += amount_ppt
    return amounts


def find_request(team_id: int, text: str) -> UsageRecord | None:
    """The team's request with that id, however it was copied."""
    try:
        id = UUID(text.strip().strip("\"'"))
    except ValueError:
        return None
    return records_of(team_id).filter(id=id).first()
