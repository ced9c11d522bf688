"""What calls used and cost, summed: exact from the ledger, or said to be pending."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from billing.pricing import format_points
from playground.meters import TurnMeter, meters_of
from playground.transcript import METER_PAUSES_SECONDS


@dataclass(frozen=True, slots=True)
class Spending:
    """`attempt` is how often the page has asked for it already."""

    meters: tuple[TurnMeter, ...]
    calls: int
    attempt: int = 0

    @property
    def points(self) -> str | None:
        """None until every call is rated. Failed calls cost nothing and are not waited for."""
        if self._unsettled:
            return None
        return format_points(sum(meter.amount_ppt or 0 for meter in self.meters))

    @property
    def awaited(self) -> bool:
        """The ledger will have more to say, and it is worth asking again."""
        return self._unsettled and self.attempt < len(METER_PAUSES_SECONDS)

    @property
    def pause_ms(self) -> int:
        return int(METER_PAUSES_SECONDS[self.attempt] * 1000)

    @property
    def next_attempt(self) -> int:
        return self.attempt + 1

    @property
    def pages(self) -> int:
        return sum(meter.record.pages for meter in self.meters)

    @property
    def characters(self) -> int:
        return sum(meter.record.characters for meter in self.meters)

    @property
    def input_tokens(self) -> int:
        return sum(meter.record.prompt_tokens for meter in self.meters)

    @property
    def estimated(self) -> bool:
        return any(meter.record.estimated for meter in self.meters)

    @property
    def unpriced(self) -> bool:
        return any(meter.record.unpriced for meter in self.meters)

    @property
    def _unsettled(self) -> bool:
        return len(self.meters) < self.calls or any(meter.charged and meter.amount_ppt is None for meter in self.meters)


def spending_of(request_ids: Sequence[uuid.UUID], *, attempt: int = 0) -> Spending:
    return Spending(tuple(meters_of(request_ids).values()), len(request_ids), attempt)
