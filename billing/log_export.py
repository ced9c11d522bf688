"""The request log as CSV: a line a request, read page by page, with what each came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accounts.models import Team
from accounts.spreadsheet import Cells, csv_text
from billing.group_names import names_of
from billing.log_choice import LogChoice
from billing.pricing import format_points
from billing.readings import GroupBy
from billing.request_log import Cursor, LoggedRequest, log_page

REQUESTS_AT_A_TIME = 1_000
_FIELDS = (
    "model", "endpoint", "source", "status", "outcome", "error_code", "stream", "finish_reason", "prompt_tokens",
    "cached_tokens", "completion_tokens", "reasoning_tokens", "image_tokens", "pages", "characters",
)  # fmt: skip
_HEADER = (
    "request_id", "started", "time_zone", "seconds", "key_id", "key", "member_id", "member", *_FIELDS,
    "estimated", "unpriced", "rated", "points",
)  # fmt: skip


def log_parts(team: Team, choice: LogChoice) -> Iterator[str]:
    """Ends with the total of its lines; a request that is not rated yet has no points."""
    yield csv_text([_HEADER])
    below: Cursor | None = None
    count = amount_ppt = 0
    while True:
        page = log_page(team.pk, wanted=choice.wanted, below=below, size=REQUESTS_AT_A_TIME)
        if page.requests:
            yield csv_text(_lines(team, choice, page.requests))
        count += len(page.requests)
        amount_ppt += sum(row.amount_ppt for row in page.requests if row.record.rated_at)
        if not page.older:
            break
        below = Cursor.parse(page.older)
    blank = [""] * (len(_HEADER) - 4)
    yield csv_text([["total", count, choice.zone.key, *blank, format_points(amount_ppt)]])


def _lines(team: Team, choice: LogChoice, rows: Sequence[LoggedRequest]) -> Iterator[Cells]:
    keys = names_of(GroupBy.KEY, {row.record.key_id for row in rows}, team_id=team.pk)
    members = names_of(GroupBy.MEMBER, {row.record.member_id for row in rows}, team_id=team.pk)
    for record, amount_ppt in rows:
        whole = (record.finished_at - record.started_at).total_seconds()
        yield [
            str(record.id),
            record.started_at.astimezone(choice.zone).isoformat(),
            choice.zone.key,
            f"{whole:.3f}",
            *_named(record.key_id, keys),
            *_named(record.member_id, members),
            *(_plain(getattr(record, name)) for name in _FIELDS),
            *map(_plain, (record.estimated, record.unpriced, record.rated_at is not None)),
            format_points(amount_ppt) if record.rated_at else "",
        ]


def _named(number: int, names: dict[Any, str]) -> tuple[str | int, str]:
    return (number, names.get(number, "")) if number else ("", "")


def _plain(value: Any) -> str | int:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, int) else str(value)
