"""The request log's end: old records are removed in batches, charges and rollups stay.

What a batch came to is added to its teams' `PrunedDay` in the same transaction, so a day still adds up:
records that are left + pruned = rollups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet, Sum

from billing.cells import team_ids
from billing.models import Charge, Correction, PrunedDay, UsageRecord

BATCH = 5_000
# The edges of a rolling window are counted from records.
MIN_KEEP_DAYS = 2


def kept_from(keep_days: int, *, now: datetime) -> datetime:
    """Midnight (UTC) from which records stay: the last `keep_days` whole days, and today."""
    if keep_days < MIN_KEEP_DAYS:
        raise ValueError(f"at least {MIN_KEEP_DAYS} days are kept")
    return datetime.combine(now.astimezone(UTC).date() - timedelta(days=keep_days), time(), UTC)


def prunable(before: datetime, *, team_id: int) -> QuerySet[UsageRecord]:
    """Rated records begun before; what still waits to be rated stays, however old."""
    return UsageRecord.objects.filter(team_id=team_id, started_at__lt=before, rated_at__isnull=False)


def prune(before: datetime) -> int:
    """Remove them in bounded transactions; returns how many. Cut off at any point, it just goes on the next time."""
    total = 0
    for team_id in list(team_ids()):
        while pruned := _prune_batch(team_id, before):
            total += pruned
    return total


@transaction.atomic
def _prune_batch(team_id: int, before: datetime) -> int:
    oldest = prunable(before, team_id=team_id).order_by("started_at").select_for_update(skip_locked=True)
    rows = list(oldest.values_list("id", "started_at")[:BATCH])
    by_day: defaultdict[date, list[UUID]] = defaultdict(list)
    for id, started_at in rows:
        by_day[started_at.date()].append(id)
    for day, ids in by_day.items():
        _seal(team_id, day, ids)
        UsageRecord.objects.filter(id__in=ids).delete()
    return len(rows)


def _seal(team_id: int, day: date, ids: Sequence[UUID]) -> None:
    charged = Charge.objects.filter(record_id__in=ids).aggregate(total=Sum("amount_ppt", default=0))
    corrected = Correction.objects.filter(record_id__in=ids).aggregate(total=Sum("amount_delta_ppt", default=0))
    PrunedDay.objects.get_or_create(team_id=team_id, day=day)
    PrunedDay.objects.filter(team_id=team_id, day=day).update(
        requests=F("requests") + len(ids), amount_ppt=F("amount_ppt") + charged["total"] + corrected["total"]
    )
