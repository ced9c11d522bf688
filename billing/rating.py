"""Rating: usage records become charges and quarter-hour sums.

One transaction takes waiting records, writes a charge a meter, adds to the rollups and marks the records
rated, so a task that dies, runs twice or beside another one changes nothing about the sums. On PostgreSQL raters
skip each other's rows; on SQLite the transaction (IMMEDIATE) is the only writer there is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.db import InterfaceError, OperationalError, connection, transaction
from django.utils import timezone

from billing.bulk import insert_json
from billing.models import Charge, Outcome, Rollup, Source, UsageRecord
from billing.pricing import METERS, Part, Usage, charges, is_unpriced, units_of
from billing.rates import RateCard

logger = logging.getLogger(__name__)
QUARTER_SECONDS = 900
DEFAULT_BATCH = 2_000
FAILED_OUTCOMES = frozenset({Outcome.ERROR.value, Outcome.INTERRUPTED.value})
_CELL = ("team_id", "quarter_at", "key_id", "member_id", "model", "endpoint", "source")
_SUMS = ("requests", "errors", "amount_ppt", *(f"{meter}_units" for meter in METERS))
_UNITS_AT = {meter: _SUMS.index(f"{meter}_units") for meter in METERS}
_CHARGE_COLUMNS = ("record_id", "meter", "units", "price_ppt", "amount_ppt", "created_at")
_ADDITIONS = ", ".join(f"{name} = billing_rollup.{name} + excluded.{name}" for name in _SUMS)
_ADD_TO_CELL = f"({', '.join(_CELL)}) DO UPDATE SET {_ADDITIONS}"


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


def rate_batch(limit: int = DEFAULT_BATCH) -> int:
    """Rate up to `limit` waiting records, the oldest first; returns how many were taken (0: none waits)."""
    waiting = UsageRecord.objects.filter(rated_at=None)
    # Asked outside the transaction: on SQLite an idle rater must not queue for the write lock.
    if not waiting.exists():
        return 0
    with transaction.atomic():
        locked = waiting.order_by("started_at").select_for_update(skip_locked=True)
        records = [Waiting(*row) for row in locked.values_list(*Waiting._fields)[:limit]]
        _settle(records, RateCard.load())
    return len(records)


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
        self._cells: dict[tuple[Any, ...], list[int]] = {}

    def add(self, record: Waiting, parts: Sequence[Part]) -> None:
        quarter = int(record.started_at.timestamp()) // QUARTER_SECONDS
        cell = (record.team_id, quarter, *record[2:7])
        sums = self._cells.get(cell) or self._cells.setdefault(cell, [0] * len(_SUMS))
        record_id = record.id.hex
        for meter, units, price_ppt, amount_ppt in parts:
            sums[_UNITS_AT[meter]] += units
            sums[2] += amount_ppt
            self._charges.append((record_id, meter, units, price_ppt, amount_ppt, self._created_at))
        sums[0] += 1
        sums[1] += record.is_failed

    def write(self) -> None:
        _insert_charges(self._charges)
        # In key order: raters that add to the same cells wait for each other instead of deadlocking.
        rows = [_rollup(cell, sums) for cell, sums in sorted(self._cells.items())]
        insert_json(Rollup, orjson.dumps(rows), on_conflict=_ADD_TO_CELL)


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


def _rollup(cell: tuple[Any, ...], sums: list[int]) -> dict[str, Any]:
    quarter_at = datetime.fromtimestamp(cell[1] * QUARTER_SECONDS, UTC)
    return dict(zip(_CELL + _SUMS, (*cell, *sums), strict=True)) | {"quarter_at": _as_text(quarter_at)}


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
    """Take a record that cannot be charged out of the queue, flagged for a person to look at."""
    # Charged before means delivered again after it was pruned: its sums stand.
    was_charged = Charge.objects.filter(record_id=record.id).exists()
    logger.error("Request %s could not be rated", record.id, exc_info=None if was_charged else error)
    UsageRecord.objects.filter(id=record.id).update(rated_at=timezone.now(), unpriced=not was_charged)
    if not was_charged:
        _count_only(record)


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
