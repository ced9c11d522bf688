"""The requests behind the sums: the log with its filters and its export, and one request with what it cost."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.safestring import SafeString
from django.views.decorators.http import require_GET

from accounts.access import team_required
from accounts.middleware import TeamRequest
from accounts.models import User
from billing.filter_options import Option, log_options, options_html
from billing.log_choice import LogChoice
from billing.models import Meter, Repricing, UsageRecord
from billing.pricing import Metered
from billing.readings import GroupBy
from billing.repricing import parts_of
from billing.request_log import Cursor, Status, find_request, log_page, records_of
from billing.snapshots import TookTooLong, one_moment


@team_required
@require_GET
def request_log(request: TeamRequest) -> HttpResponse:
    sought = request.GET.get("q", "").strip()
    record = find_request(request.team.pk, sought) if sought else None
    if record:
        return redirect("billing:request", record.id)
    choice = LogChoice.read(request.GET.dict(), zone=ZoneInfo(request.team.time_zone))
    below = Cursor.parse(request.GET.get("below", ""))
    try:
        with one_moment():
            page = log_page(request.team.pk, wanted=choice.wanted, below=below)
    except TookTooLong:
        return render(request, "billing/too_long.html", status=503)
    keys = request.team.api_keys.in_bulk({row.record.key_id for row in page.requests})
    context = {
        "choice": choice,
        "rows": [(row, keys.get(row.record.key_id)) for row in page.requests],
        "page": page,
        "sought": sought,
        "is_first": below is None,
        "zone": choice.zone,
        "options": _options(request, choice),
        "statuses": options_html((Option(one.value, str(one.label)) for one in Status), choice.status),
    }
    return render(request, "billing/requests.html", context)


def _options(request: TeamRequest, choice: LogChoice) -> list[tuple[GroupBy, SafeString]]:
    found = log_options(request.team, choice.columns, now=timezone.now())
    return [(by, options_html(options, str(choice.columns.get(by, "")))) for by, options in found.items()]


@team_required
@require_GET
def request_detail(request: TeamRequest, record_id: UUID) -> HttpResponse:
    record = get_object_or_404(records_of(request.team.pk), id=record_id)
    order = {meter.value: place for place, meter in enumerate(Metered)}
    parts = sorted(parts_of([record.id]).get(record.id, {}).values(), key=lambda part: order[part.meter])
    context = {
        "record": record,
        "charges": [{"label": Meter(part.meter).label, **part._asdict()} for part in parts],
        "amount_ppt": sum(part.amount_ppt for part in parts),
        "repriced": Repricing.objects.filter(corrections__record=record).order_by("-pk").first(),
        "key": request.team.api_keys.filter(pk=record.key_id).first(),
        "member": User.objects.filter(pk=record.member_id).first(),
        "usage": json.dumps(record.usage, indent=2, ensure_ascii=False) if record.usage else "",
        "zone": ZoneInfo(request.team.time_zone),
    } | _durations(record)
    return render(request, "billing/request.html", context)


def _durations(record: UsageRecord) -> dict[str, Any]:
    first_byte = (record.first_byte_at - record.started_at).total_seconds() if record.first_byte_at else None
    return {
        "first_byte_seconds": first_byte,
        "total_seconds": (record.finished_at - record.started_at).total_seconds(),
    }
