"""What the usage pages show, as files: complete, streamed, of the very same choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zoneinfo import ZoneInfo

from asgiref.sync import sync_to_async
from django.http import HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts.access import team_required
from accounts.middleware import TeamRequest
from accounts.spreadsheet import BYTE_ORDER_MARK
from billing.exports import csv_parts, json_parts, streamed
from billing.log_choice import LogChoice
from billing.log_export import log_parts
from billing.request_log import records_of
from billing.usage_choice import UsageChoice


@team_required
@require_GET
async def export_csv(request: TeamRequest) -> HttpResponseBase:
    choice = _choice(request)
    return _file(csv_parts(choice.query(request.team.pk)), f"{_name(choice)}.csv")


@team_required
@require_GET
async def export_json(request: TeamRequest) -> HttpResponseBase:
    choice, team_id = _choice(request), request.team.pk
    unrated = await sync_to_async(lambda: records_of(team_id).filter(rated_at=None).count())()
    return _file(json_parts(choice.query(team_id), unrated=unrated), f"{_name(choice)}.json")


@team_required
@require_GET
async def export_requests(request: TeamRequest) -> HttpResponseBase:
    choice = LogChoice.read(request.GET.dict(), zone=ZoneInfo(request.team.time_zone))
    return _file(log_parts(request.team, choice), "requests.csv")


def _choice(request: TeamRequest) -> UsageChoice:
    return UsageChoice.read(request.GET.dict(), zone=ZoneInfo(request.team.time_zone), now=timezone.now())


def _name(choice: UsageChoice) -> str:
    return f"usage_{choice.first}_{choice.last}_by_{choice.group_by}"


def _file(parts: Iterator[str], name: str) -> StreamingHttpResponse:
    is_csv = name.endswith(".csv")
    return StreamingHttpResponse(
        streamed(_marked(parts) if is_csv else parts, in_thread=_in_thread),
        content_type="text/csv; charset=utf-8" if is_csv else "application/json",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
    )


def _marked(parts: Iterator[str]) -> Iterator[str]:
    yield BYTE_ORDER_MARK
    yield from parts


async def _in_thread(work: Callable[[], str | None]) -> str | None:
    return await sync_to_async(work)()
