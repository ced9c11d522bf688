"""Repricing: what the rate card of now makes of requests charged before, shown or booked.

No charge is edited. Each meter that comes out differently gets a `Correction` with its new price and the difference,
the rollups get the difference, and the run is kept with who asked for it and why. A run that was cut off is simply
repeated: what is booked comes out equal the next time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from billing.cells import AMOUNT_AT, UNITS_AT, Cell, Cells, quarter_of, team_ids
from billing.models import Charge, Correction, PrunedDay, Repricing, SetAside, Source, UsageRecord
from billing.pricing import Part, Usage, charges, is_unpriced, units_of
from billing.rates import RateCard

BATCH = 1_000


class Priced(NamedTuple):
    """The columns of a record that its price depends on, in the order they are read."""

    id: UUID
    team_id: int
    key_id: int
    member_id: int
    model: str
    endpoint: str
    source: str
    status: int
    started_at: datetime
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    pages: int
    characters: int

    @property
    def cell(self) -> Cell:
        return Cell(self.team_id, quarter_of(self.started_at), *self[2:7])


class Price(NamedTuple):
    parts: list[Part]
    unpriced: bool


def price(record: Priced, card: RateCard) -> Price:
    """What one record costs, as rating's statements charge it (a property test holds the two equal).

    Charged is whatever a 2xx answer delivered, however it ended. A team's own endpoint counts units at no price.
    """
    if not 200 <= record.status < 300:
        return Price([], False)
    is_own = record.source == Source.DEDICATED
    prices = {} if is_own else card.prices(record.model, record.started_at)
    units = units_of(Usage(*record[-5:]), has_cache_rate=is_own or "cache_read" in prices)
    return Price(charges(units, prices), not is_own and is_unpriced(units, prices))


class RepricingError(ValueError):
    """A period that cannot be repriced; the message is for the operator."""


@dataclass(frozen=True)
class Order:
    """What is to be repriced (`start` included, `end` not), on whose word."""

    start: datetime
    end: datetime
    by: str
    model: str = ""
    reason: str = ""


@dataclass
class Difference:
    """What it comes to for one model of one team."""

    requests: int = 0
    before_ppt: int = 0
    after_ppt: int = 0

    @property
    def delta_ppt(self) -> int:
        return self.after_ppt - self.before_ppt


@dataclass
class Outcome:
    """`differences` by team and model; `failed` are requests that no price could be worked out for."""

    differences: defaultdict[tuple[int, str], Difference] = field(default_factory=lambda: defaultdict(Difference))
    failed: list[UUID] = field(default_factory=list)
    repricing: Repricing | None = None


class _Change(NamedTuple):
    record: Priced
    before: dict[str, Part]
    after: dict[str, Part]
    unpriced: bool


def reprice(order: Order, *, dry_run: bool) -> Outcome:
    """Compare, and unless it is a dry run book. Raises RepricingError for a period whose records are gone."""
    if order.start >= order.end:
        raise RepricingError("the period ends before it begins")
    if pruned := PrunedDay.objects.filter(day__gte=order.start.date(), day__lt=order.end).order_by("-day").first():
        raise RepricingError(f"the requests up to {pruned.day} are pruned; their charges stand")
    card, outcome = RateCard.load(), Outcome()
    for team_id in list(team_ids()):
        below: tuple[datetime, UUID] | None = None
        while True:
            with transaction.atomic():
                records = _batch(order, team_id, below)
                _reprice_batch(records, card, order, outcome, dry_run=dry_run)
            if len(records) < BATCH:
                break
            below = records[-1].started_at, records[-1].id
    return outcome


def _batch(order: Order, team_id: int, below: tuple[datetime, UUID] | None) -> list[Priced]:
    """The next records, locked: of two runs at once, the later sees what the earlier booked."""
    rows = UsageRecord.objects.answered().filter(
        team_id=team_id, started_at__gte=order.start, started_at__lt=order.end, rated_at__isnull=False
    )
    if order.model:
        rows = rows.filter(model=order.model)
    if below:
        rows = rows.filter(started_at__gte=below[0]).filter(Q(started_at__gt=below[0]) | Q(id__gt=below[1]))
    locked = rows.order_by("started_at", "id").select_for_update()
    return [Priced(*row) for row in locked.values_list(*Priced._fields)[:BATCH]]


def _reprice_batch(records: Sequence[Priced], card: RateCard, order: Order, outcome: Outcome, *, dry_run: bool) -> None:
    booked = parts_of([record.id for record in records])
    changes = list(_changes(records, booked, card, outcome.failed))
    for change in changes:
        difference = outcome.differences[change.record.team_id, change.record.model]
        difference.requests += 1
        difference.before_ppt += sum(part.amount_ppt for part in change.before.values())
        difference.after_ppt += sum(part.amount_ppt for part in change.after.values())
    if changes and not dry_run:
        outcome.repricing = outcome.repricing or Repricing.objects.create(
            start_at=order.start, end_at=order.end, model=order.model, reason=order.reason, created_by=order.by
        )
        _book(changes, outcome.repricing)


def _changes(
    records: Iterable[Priced], booked: dict[UUID, dict[str, Part]], card: RateCard, failed: list[UUID]
) -> Iterator[_Change]:
    for record in records:
        try:
            priced = price(record, card)
        except Exception:  # noqa: BLE001 -- a record that was set aside may still not be priceable
            failed.append(record.id)
            continue
        before = booked.get(record.id, {})
        after = {part.meter: part for part in priced.parts}
        if before != after:
            yield _Change(record, before, after, priced.unpriced)


def _book(changes: Sequence[_Change], repricing: Repricing) -> None:
    corrections, cells = [], Cells()
    for change in changes:
        sums = cells.of(change.record.cell)
        for meter in change.before.keys() | change.after.keys():
            before = change.before.get(meter, Part(meter, 0, 0, 0))
            after = change.after.get(meter, Part(meter, 0, 0, 0))
            if before == after:
                continue
            units, amount_ppt = after.units - before.units, after.amount_ppt - before.amount_ppt
            sums[UNITS_AT[meter]] += units
            sums[AMOUNT_AT] += amount_ppt
            corrections.append(
                Correction(
                    record_id=change.record.id,
                    meter=meter,
                    repricing=repricing,
                    units=after.units,
                    price_ppt=after.price_ppt,
                    units_delta=units,
                    amount_delta_ppt=amount_ppt,
                )
            )
    Correction.objects.bulk_create(corrections)
    cells.add_to_rollups()
    for unpriced in (True, False):
        ids = [change.record.id for change in changes if change.unpriced is unpriced]
        UsageRecord.objects.filter(id__in=ids).exclude(unpriced=unpriced).update(unpriced=unpriced)
    SetAside.objects.filter(record_id__in=[change.record.id for change in changes]).delete()


def parts_of(record_ids: Sequence[UUID]) -> dict[UUID, dict[str, Part]]:
    """What each record's meters come to now: the last correction of each, else its charge."""
    found: defaultdict[UUID, dict[str, Part]] = defaultdict(dict)
    for rows in (_rows(Charge.objects.all(), record_ids), _rows(Correction.objects.order_by("repricing"), record_ids)):
        for record_id, meter, units, price_ppt in rows:
            found[record_id][meter] = Part(meter, units, price_ppt, units * price_ppt)
    return {id: {meter: part for meter, part in parts.items() if part.units} for id, parts in found.items()}


def _rows(rows: QuerySet[Charge] | QuerySet[Correction], ids: Sequence[UUID]) -> Iterator[tuple[UUID, str, int, int]]:
    yield from rows.filter(record_id__in=ids).values_list("record_id", "meter", "units", "price_ppt")
