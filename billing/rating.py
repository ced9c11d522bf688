"""Rating: usage records become charges and quarter-hour sums.

One transaction takes waiting records, writes a charge a meter, adds to the rollups and marks the records
rated, so a task that dies, runs twice or beside another one changes nothing about the sums. On PostgreSQL raters
skip each other's rows; on SQLite the transaction (IMMEDIATE) is the only writer there is. The database does the
work (`billing.rating_statements`); here is what happens around it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from django.db import Error, InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from accounts.models import ApiKey
from billing.cells import QUARTER_SECONDS, SUMMED_AFTER_SECONDS, mark_stale, quarter_of
from billing.models import Charge, PrunedDay, SetAside, UsageRecord
from billing.rates import RateCard
from billing.rating_statements import EVER, Use, settle_given, settle_oldest

logger = logging.getLogger(__name__)
DEFAULT_BATCH = 5_000
MAX_REASON = 500


class Progress:
    """What a run of batches has come to: how far it is in the queue, and each key's latest use."""

    def __init__(self) -> None:
        self.since = EVER
        self.latest: dict[int, datetime] = {}

    def add(self, uses: Iterable[Use]) -> None:
        for use in uses:
            self.since = max(self.since, use.latest_at)
            if use.key_id and use.latest_at > self.latest.get(use.key_id, EVER):
                self.latest[use.key_id] = use.latest_at


def rate_waiting(*, max_batches: int, limit: int = DEFAULT_BATCH) -> bool:
    """Rate batch by batch until nothing waits; True if something may after `max_batches` of them.

    Each batch begins where the one before it ended: the queue's index keeps what was rated until it is vacuumed, and
    reading that again for every batch would cost the more the longer the backlog is. What comes with an earlier time
    meanwhile is the next run's.
    """
    progress = Progress()
    try:
        return all(rate_batch(limit, progress=progress) == limit for _ in range(max_batches))
    finally:
        # Once for all batches: a statement a key would otherwise cost as much as the rating.
        _note_use(progress.latest)


def rate_batch(limit: int = DEFAULT_BATCH, *, progress: Progress | None = None) -> int:
    """Rate up to `limit` waiting records, the oldest first; returns how many were taken (0: none waits).

    Without `progress` the whole queue is looked through, and the keys' uses are noted here.
    """
    # Asked outside the transaction: on SQLite an idle rater must not queue for the write lock.
    if connection.vendor == "sqlite" and not UsageRecord.objects.filter(rated_at=None).exists():
        return 0
    here = progress or Progress()
    with transaction.atomic():
        uses = _settle_oldest(limit, since=here.since)
        _spoil_summed_days(uses)
    here.add(uses)
    if progress is None:
        _note_use(here.latest)
    if unpriced := sum(use.unpriced for use in uses):
        model = next(use.unpriced_model for use in uses if use.unpriced)
        logger.warning("%d requests used a meter that has no rate, e.g. of %s", unpriced, model)
    return sum(use.requests for use in uses)


def _settle_oldest(limit: int, *, since: datetime) -> list[Use]:
    card, now = RateCard.load(), timezone.now()
    try:
        with transaction.atomic():
            return settle_oldest(limit, since=since, card=card, now=now)
    except Error as error:
        if _is_databases_state(error):
            raise
        waiting = UsageRecord.objects.filter(rated_at=None, started_at__gte=since).order_by("started_at")
        locked = waiting.select_for_update(skip_locked=True).values_list("id", flat=True)
        return _settle(list(locked[:limit]), card, now)


def _settle(ids: Sequence[UUID], card: RateCard, now: datetime) -> list[Use]:
    """Rate all of them; what cannot be rated is found by halving and set aside, so that the rest goes on."""
    if not ids:
        return []
    try:
        with transaction.atomic():
            return settle_given(ids, charged=True, card=card, now=now)
    except Error as error:
        if _is_databases_state(error):
            raise
        if len(ids) == 1:
            return _set_aside(ids[0], error, card, now)
        middle = len(ids) // 2
        return _settle(ids[:middle], card, now) + _settle(ids[middle:], card, now)


def _is_databases_state(error: Error) -> bool:
    """Gone, deadlock, time-out: no record's fault, the batch is tried again."""
    # SQLite has no better word for a sum beyond 64 bits.
    return isinstance(error, OperationalError | InterfaceError) and "integer overflow" not in str(error)


def _spoil_summed_days(uses: Iterable[Use]) -> None:
    """Days to which something came late no longer count as summed."""
    closed = timezone.now().timestamp() - SUMMED_AFTER_SECONDS
    late = {(use.team_id, use.quarter) for use in uses if use.quarter * QUARTER_SECONDS < closed}
    if late:
        # After the rollups: whoever sums a day meanwhile either waits for these rows or is found here.
        mark_stale((team_id, datetime.fromtimestamp(quarter * QUARTER_SECONDS, UTC)) for team_id, quarter in late)


def _note_use(latest: dict[int, datetime]) -> None:
    if latest:
        with transaction.atomic():
            ApiKey.objects.mark_used(latest)


# -- poison -------------------------------------------------------------------------------------


def _set_aside(id: UUID, error: Error, card: RateCard, now: datetime) -> list[Use]:
    """Take a record that cannot be charged out of the queue, for a person to look at."""
    record = UsageRecord.objects.get(id=id)
    taken = [Use(record.team_id, quarter_of(record.started_at), 0, 1, record.started_at, 0, None)]
    if Charge.objects.filter(record_id=id).exists():
        _refuse_again(record, now)
        return taken
    logger.error("Request %s could not be rated and is set aside", id, exc_info=error)
    reason = f"{type(error).__name__}: {error}"[:MAX_REASON]
    SetAside.objects.get_or_create(record_id=id, defaults={"reason": reason.replace("\0", "")})
    try:
        with transaction.atomic():
            taken = settle_given([id], charged=False, card=card, now=now)
    except Error as uncountable:
        if _is_databases_state(uncountable):
            raise
        logger.exception("Request %s could not even be counted", id)
    UsageRecord.objects.filter(id=id).update(rated_at=now, unpriced=True)
    return taken


def _refuse_again(record: UsageRecord, now: datetime) -> None:
    """Charged before means delivered again after it was pruned: its sums stand, and the pruned day holds it."""
    logger.error("Request %s was charged before and came again", record.id)
    again = UsageRecord.objects.filter(id=record.id)
    day = record.started_at.astimezone(UTC).date()
    if PrunedDay.objects.filter(team_id=record.team_id, day=day).exists():
        again.delete()
    else:
        again.update(rated_at=now)
