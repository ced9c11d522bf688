"""Rating: usage records become charges and quarter-hour sums.

One transaction takes waiting records, writes a charge a meter, adds to the rollups and marks the records
rated, so a task that dies, runs twice or beside another one changes nothing about the sums. On PostgreSQL raters
skip each other's rows; on SQLite the transaction (IMMEDIATE) is the only writer there is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

import orjson
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from accounts.models import ApiKey
from billing.cells import AMOUNT_AT, FAILED_OUTCOMES, UNITS_AT, Cell, Cells, quarter_of
from billing.models import Charge, PrunedDay, SetAside, Source, UsageRecord
from billing.pricing import Part, Usage, charges, is_unpriced, units_of
from billing.rates import RateCard

logger = logging.getLogger(__name__)
DEFAULT_BATCH = 2_000
MAX_REASON = 500
EVER = datetime.min.replace(tzinfo=UTC)
_CHARGE_COLUMNS = ("record_id", "meter", "units", "price_ppt", "amount_ppt", "created_at")


class Waiting(NamedTuple):
    """The columns of a record that its price depends on, in the order they are read."""

    id: UUID
    team_id: int
    key_id: int
    member_id: int
    model: str
    endpoint: str
    source: str
    status: int
    outcome: str
    started_at: datetime
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    pages: int
    characters: int

    @property
    def is_charged(self) -> bool:
        """By the status alone: a stream that died half-way has delivered what it delivered."""
        return 200 <= self.status < 300

    @property
    def cell(self) -> Cell:
        return Cell(self.team_id, quarter_of(self.started_at), *self[2:7])

    @property
    def is_failed(self) -> bool:
        return not self.is_charged or self.outcome in FAILED_OUTCOMES


class Rated(NamedTuple):
    parts: list[Part]
    unpriced: bool


def rate(record: Waiting, card: RateCard) -> Rated:
    """What one record costs. A failed call costs nothing; a team's own endpoint counts units at no price."""
    if not record.is_charged:
        return Rated([], False)
    is_own = record.source == Source.DEDICATED
    prices = {} if is_own else card.prices(record.model, record.started_at)
    units = units_of(Usage(*record[-5:]), has_cache_rate=is_own or "cache_read" in prices)
    return Rated(charges(units, prices), not is_own and is_unpriced(units, prices))


def rate_waiting(*, max_batches: int, limit: int = DEFAULT_BATCH) -> bool:
    """Rate batch by batch until nothing waits; True if something may after `max_batches` of them."""
    latest: dict[int, datetime] = {}
    try:
        return all(rate_batch(limit, latest=latest) == limit for _ in range(max_batches))
    finally:
        # Once for all batches: a statement a key would otherwise cost as much as the rating.
        _note_use(latest)


def rate_batch(limit: int = DEFAULT_BATCH, *, latest: dict[int, datetime] | None = None) -> int:
    """Rate up to `limit` waiting records, the oldest first; returns how many were taken (0: none waits).

    `latest` collects each key's latest use; without it the uses are noted here.
    """
    waiting = UsageRecord.objects.filter(rated_at=None)
    # Asked outside the transaction: on SQLite an idle rater must not queue for the write lock.
    if not waiting.exists():
        return 0
    with transaction.atomic():
        locked = waiting.order_by("started_at").select_for_update(skip_locked=True)
        records = [Waiting(*row) for row in locked.values_list(*Waiting._fields)[:limit]]
        _settle(records, RateCard.load())
    used = {} if latest is None else latest
    for record in records:
        if record.key_id and record.started_at > used.get(record.key_id, EVER):
            used[record.key_id] = record.started_at
    if latest is None:
        _note_use(used)
    return len(records)


def _note_use(latest: dict[int, datetime]) -> None:
    if latest:
        with transaction.atomic():
            ApiKey.objects.mark_used(latest)


def _settle(records: Sequence[Waiting], card: RateCard) -> None:
    """Write all of it; what cannot be written is found by halving and set aside, so that the rest goes on."""
    if not records:
        return
    try:
        with transaction.atomic():
            _write(records, card)
    except (OperationalError, InterfaceError):
        # The database's state (gone, deadlock, time-out), not a record's fault: the batch is tried again.
        raise
    except Exception as error:  # noqa: BLE001 -- whatever a record holds must not stop the others
        if len(records) > 1:
            middle = len(records) // 2
            _settle(records[:middle], card)
            _settle(records[middle:], card)
        else:
            _set_aside(records[0], error)


def _write(records: Sequence[Waiting], card: RateCard) -> None:
    now = timezone.now()
    ledger = _Ledger(now)
    unpriced = []
    for record in records:
        rated = rate(record, card)
        ledger.add(record, rated.parts)
        if rated.unpriced:
            unpriced.append(record.id)
    ledger.write()
    _mark_rated([record.id for record in records], at=now)
    if unpriced:
        logger.warning("%d requests used a meter that has no rate, e.g. %s", len(unpriced), unpriced[0])
        UsageRecord.objects.filter(id__in=unpriced).update(unpriced=True)


class _Ledger:
    """The charges and sums of one batch, on their way into the database."""

    def __init__(self, now: datetime) -> None:
        self._created_at = _as_text(now)
        self._charges: list[tuple[str, str, int, int, int, str]] = []
        self._cells = Cells()

    def add(self, record: Waiting, parts: Sequence[Part]) -> None:
        sums = self._cells.of(record.cell)
        record_id = record.id.hex
        for meter, units, price_ppt, amount_ppt in parts:
            sums[UNITS_AT[meter]] += units
            sums[AMOUNT_AT] += amount_ppt
            self._charges.append((record_id, meter, units, price_ppt, amount_ppt, self._created_at))
        sums[0] += 1
        sums[1] += record.is_failed

    def write(self) -> None:
        _insert_charges(self._charges)
        self._cells.add_to_rollups()


def _insert_charges(rows: Sequence[tuple[str, str, int, int, int, str]]) -> None:
    """By each database's fastest way: charges are most of what a rater writes."""
    table, columns = Charge._meta.db_table, ", ".join(_CHARGE_COLUMNS)
    # Both ways go past Django's cursor, so its exceptions have to be asked for.
    with connection.cursor() as cursor, connection.wrap_database_errors:
        if connection.vendor == "sqlite":
            marks = ", ".join("?" * len(_CHARGE_COLUMNS))
            cursor.connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)  # noqa: S608 -- the model's own names
            return
        # Numbers, hex digits, meters and times: nothing that COPY's text would need escaped.
        lines = [f"{id}\t{meter}\t{n}\t{price}\t{amount}\t{at}\n" for id, meter, n, price, amount, at in rows]
        with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            copy.write("".join(lines))


def _mark_rated(ids: Sequence[UUID], *, at: datetime) -> None:
    """One parameter for all ids: SQLite and the planner dislike thousands."""
    table = UsageRecord._meta.db_table
    if connection.vendor == "sqlite":
        chosen, parameter = "id IN (SELECT value FROM json_each(%s))", orjson.dumps([id.hex for id in ids]).decode()
    else:
        chosen, parameter = "id = ANY(%s)", list(ids)  # type: ignore[assignment]
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET rated_at = %s WHERE {chosen}", [_as_text(at), parameter])  # noqa: S608 -- the model's own table


def _set_aside(record: Waiting, error: Exception) -> None:
    """Take a record that cannot be charged out of the queue, for a person to look at."""
    if Charge.objects.filter(record_id=record.id).exists():
        _refuse_again(record)
        return
    logger.error("Request %s could not be rated and is set aside", record.id, exc_info=error)
    reason = f"{type(error).__name__}: {error}"[:MAX_REASON]
    SetAside.objects.get_or_create(record_id=record.id, defaults={"reason": reason.replace("\0", "")})
    UsageRecord.objects.filter(id=record.id).update(rated_at=timezone.now(), unpriced=True)
    _count_only(record)


def _refuse_again(record: Waiting) -> None:
    """Charged before means delivered again after it was pruned: its sums stand, and the pruned day holds it."""
    logger.error("Request %s was charged before and came again", record.id)
    again = UsageRecord.objects.filter(id=record.id)
    day = record.started_at.astimezone(UTC).date()
    if PrunedDay.objects.filter(team_id=record.team_id, day=day).exists():
        again.delete()
    else:
        again.update(rated_at=timezone.now())


def _count_only(record: Waiting) -> None:
    try:
        with transaction.atomic():
            ledger = _Ledger(timezone.now())
            ledger.add(record, [])
            ledger.write()
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        logger.exception("Request %s could not even be counted", record.id)


def _as_text(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
