"""What a reader of the request log looks for, read from the URL: every nonsense in it is as if it were not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from billing.buckets import midnight
from billing.readings import GroupBy
from billing.request_log import LogFilter, Status
from billing.usage_choice import read_filters, read_zone

_EARLIEST, _LATEST = date(2001, 1, 1), date(9000, 1, 1)


@dataclass(frozen=True)
class LogChoice:
    """Times are by the clock of the zone: the team's, or the one that the URL names."""

    start: datetime | None
    end: datetime | None
    columns: Mapping[GroupBy, str | int]
    status: Status | None
    zone: ZoneInfo

    @classmethod
    def read(cls, values: Mapping[str, str], *, zone: ZoneInfo) -> Self:
        zone = read_zone(values.get("tz", "")) or zone
        status = values.get("status", "")
        return cls(
            start=_moment(values.get("start", ""), zone),
            end=_moment(values.get("end", ""), zone, days=1),
            columns=read_filters(values),
            status=Status(status) if status in Status.values else None,
            zone=zone,
        )

    @property
    def wanted(self) -> LogFilter:
        return LogFilter(self.start, self.end, self.columns, self.status)

    @property
    def is_any(self) -> bool:
        return not (self.start or self.end or self.columns or self.status)

    @property
    def start_text(self) -> str:
        return self._text(self.start)

    @property
    def end_text(self) -> str:
        return self._text(self.end)

    def _text(self, moment: datetime | None) -> str:
        """As a field of date and time takes it."""
        return f"{moment.astimezone(self.zone):%Y-%m-%dT%H:%M}" if moment else ""


def _moment(text: str, zone: ZoneInfo, *, days: int = 0) -> datetime | None:
    """A day means its beginning (`days` later: its end); a time without an offset is the zone's."""
    # An unescaped plus sign arrives as a space.
    text = text.strip().replace(" ", "+")
    try:
        if len(text) == len("2026-11-29"):
            day = date.fromisoformat(text)
            return midnight(day + timedelta(days=days), zone) if _EARLIEST <= day <= _LATEST else None
        moment = datetime.fromisoformat(text)
        if not _EARLIEST <= moment.date() <= _LATEST:
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
