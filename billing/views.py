"""The usage page: the report a reader chose, and what of it is left to use."""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts.access import team_required
from accounts.middleware import TeamRequest
from billing.forecast import cached_gauge
from billing.quota_notices import cached_status
from billing.reports import GroupBy
from billing.snapshots import TookTooLong
from billing.usage_choice import Period, UsageChoice, zone_options
from billing.usage_page import usage_page


@team_required
@require_GET
def usage(request: TeamRequest) -> HttpResponse:
    now = timezone.now()
    choice = read_choice(request)
    try:
        page = usage_page(request.team, choice, values=request.GET.dict(), now=now)
    except TookTooLong:
        return too_long(request)
    context = {
        "page": page,
        "choice": choice,
        "report": page.report,
        "chart": page.chart,
        "periods": Period,
        "groupings": GroupBy,
        "groups": page.groups,
        "rows": page.rows,
        "zone": choice.zone,
        "zones": zone_options(),
    }
    if request.htmx and not request.htmx.history_restore_request:
        return render(request, "billing/usage.html#report", context)
    return render(request, "billing/usage.html", context | _quota(request))


def read_choice(request: TeamRequest) -> UsageChoice:
    return UsageChoice.read(request.GET.dict(), zone=ZoneInfo(request.team.time_zone), now=timezone.now())


def too_long(request: HttpRequest) -> HttpResponse:
    return render(request, "billing/too_long.html", status=503)


def _quota(request: TeamRequest) -> dict[str, Any]:
    status = cached_status(request.team)
    try:
        return {"gauge": status and cached_gauge(status, team_id=request.team.pk, now=timezone.now())}
    except TookTooLong:
        return {"gauge": None}
