"""The query string of `/api/usage`, read strictly: nonsense is refused by the parameter's name, never guessed at."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from billing.buckets import Interval, midnight
from billing.reports import GroupBy, ReportError, UsageQuery
from gateway.errors import InvalidRequest

DEFAULT_DAYS = 30
NAMES = frozenset({"start", "end", "interval", "tz", "group_by", "format", *GroupBy.values})
YES, NO = frozenset({"1", "true", "yes"}), frozenset({"", "0", "false", "no"})


def read_parameters(query_string: bytes) -> dict[str, str]:
    """Of a name that comes twice the last value counts, as with JSON's keys."""
    pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, encoding="utf-8", max_num_fields=None)
    if any("\0" in value for _, value in pairs):
        raise InvalidRequest("The query string holds a NUL character")
    return dict(pairs)


def read_flag(parameters: Mapping[str, str], name: str) -> bool:
    value = parameters.get(name, "").lower()
    if value not in YES | NO:
        raise _refuse(name, "true or false")
    return value in YES


def read_usage_query(parameters: Mapping[str, str], *, team_id: int, zone: ZoneInfo, now: datetime) -> UsageQuery:
    """Raises InvalidRequest. Without a period, the last 30 days of the zone."""
    for name in parameters:
        if name not in NAMES:
            raise InvalidRequest(f"Unknown parameter {name[:64]}", param=name[:64])
    if parameters.get("format", "json") not in ("json", "csv"):
        raise _refuse("format", "json or csv")
    zone = _zone(parameters["tz"]) if parameters.get("tz") else zone
    start, end = _period(parameters, zone, now)
    filters = {by: _filter(by, parameters[by.value]) for by in GroupBy if parameters.get(by.value)}
    try:
        return UsageQuery(team_id, start, end, zone, _interval(parameters), _group_by(parameters), filters)
    except ReportError as error:
        raise InvalidRequest(str(error), param="start") from None


def _refuse(name: str, expected: str) -> InvalidRequest:
    return InvalidRequest(f"{name} must be {expected}", param=name)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _refuse("tz", "a time zone such as Asia/Shanghai") from None


def _period(parameters: Mapping[str, str], zone: ZoneInfo, now: datetime) -> tuple[datetime, datetime]:
    today = now.astimezone(zone).date()
    last = parameters.get("end", "")
    end = _moment("end", last, zone, days=1) if last else midnight(today + timedelta(days=1), zone)
    first = parameters.get("start", "")
    if first:
        return _moment("start", first, zone), end
    try:
        return midnight(end.astimezone(zone).date() - timedelta(days=DEFAULT_DAYS), zone), end
    except OverflowError:
        raise _refuse("end", _EXPECTED_MOMENT) from None


_EXPECTED_MOMENT = "a date (2026-11-29) or a time with its offset (2026-11-29T08:00:00+08:00)"


def _moment(name: str, text: str, zone: ZoneInfo, *, days: int = 0) -> datetime:
    """A date is that day of the zone (`days` later: its end); a time without an offset is the zone's."""
    # An unescaped plus sign arrives as a space.
    text = text.strip().replace(" ", "+") if "T" in text else text.strip()
    try:
        if len(text) == len("2026-11-29"):
            return midnight(date.fromisoformat(text) + timedelta(days=days), zone)
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(zone)
    except (ValueError, OverflowError):
        raise _refuse(name, _EXPECTED_MOMENT) from None


def _interval(parameters: Mapping[str, str]) -> Interval:
    value = parameters.get("interval") or Interval.DAY.value
    if value not in Interval.values:
        raise _refuse("interval", "hour, day or month")
    return Interval(value)


def _group_by(parameters: Mapping[str, str]) -> tuple[GroupBy, ...]:
    names = [name.strip() for name in (parameters.get("group_by") or GroupBy.MODEL.value).split(",")]
    if len(set(names)) < len(names) or not set(names) <= set(GroupBy.values):
        raise _refuse("group_by", f"one or more of {', '.join(GroupBy.values)}, each once")
    return tuple(GroupBy(name) for name in names)


def _filter(by: GroupBy, value: str) -> str | int:
    if by not in {GroupBy.KEY, GroupBy.MEMBER}:
        return value[:200]
    if not (value.isascii() and value.isdigit() and len(value) < 19):
        raise _refuse(by.value, "a number")
    return int(value)
