"""A team's single requests: newest first, one page after the other, however many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Self
from uuid import UUID

from django.db.models import Q, QuerySet

from billing.models import Charge, Correction, UsageRecord

PAGE_SIZE = 50


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


class LoggedRequest(NamedTuple):
    record: UsageRecord
    amount_ppt: int


class LogPage(NamedTuple):
    requests: list[LoggedRequest]
    older: str
    """The cursor of the next page, empty on the last one."""


def records_of(team_id: int) -> QuerySet[UsageRecord]:
    return UsageRecord.objects.filter(team_id=team_id)


def log_page(team_id: int, *, below: Cursor | None = None, size: int = PAGE_SIZE) -> LogPage:
    records = records_of(team_id).order_by("-started_at", "-id").defer("usage")
    if below:
        # The first condition is what the index can seek by.
        records = records.filter(started_at__lte=below.started_at).filter(
            Q(started_at__lt=below.started_at) | Q(id__lt=below.id)
        )
    found = list(records[: size + 1])
    shown = found[:size]
    amounts = amounts_of([record.id for record in shown])
    older = str(Cursor(shown[-1].started_at, shown[-1].id)) if len(found) > size else ""
    return LogPage([LoggedRequest(record, amounts.get(record.id, 0)) for record in shown], older)


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
