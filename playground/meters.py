"""What an answer used and cost, read from the ledger: exact, or said to be pending."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from billing.models import UsageRecord
from billing.pricing import format_points
from billing.request_log import amounts_of


@dataclass(frozen=True, slots=True)
class TurnMeter:
    record: UsageRecord
    # None until the record is rated.
    amount_ppt: int | None

    @property
    def points(self) -> str | None:
        return None if self.amount_ppt is None else format_points(self.amount_ppt)

    @property
    def charged(self) -> bool:
        """Failed calls are recorded and cost nothing; there is no number to show."""
        return 200 <= self.record.status < 300

    @property
    def first_token_seconds(self) -> float | None:
        first = self.record.first_byte_at
        return (first - self.record.started_at).total_seconds() if first else None

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens over the time they came in; None where that is too short to mean anything."""
        first = self.record.first_byte_at
        seconds = (self.record.finished_at - first).total_seconds() if first else 0
        return self.record.completion_tokens / seconds if seconds > 0.05 and self.record.completion_tokens else None


def meters_of(request_ids: Iterable[uuid.UUID | None]) -> dict[uuid.UUID, TurnMeter]:
    """Meters by request id, in two queries; a request still on its way to the ledger is missing."""
    records = UsageRecord.objects.in_bulk([request_id for request_id in request_ids if request_id])
    rated = [record.pk for record in records.values() if record.rated_at]
    amounts = {**dict.fromkeys(rated, 0), **amounts_of(rated)}
    return {pk: TurnMeter(record, amounts.get(pk)) for pk, record in records.items()}
