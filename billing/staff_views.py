"""/staff/: what all teams used and what waits. To anybody but the installation's staff the page does not exist."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from accounts.access import staff_required
from billing.buckets import midnight
from billing.snapshots import TookTooLong
from billing.staff import AllTeams
from billing.usage_choice import Period


@staff_required
@require_safe
def staff(request: HttpRequest) -> HttpResponse:
    """Days are those of the zone that new teams have."""
    chosen = request.GET.get("period", "")
    period = Period(chosen) if chosen in Period.values else Period.MONTH
    zone, now = ZoneInfo(settings.TEAM_TIME_ZONE), timezone.now()
    today = now.astimezone(zone).date()
    start, end = midnight(today - timedelta(days=int(period) - 1), zone), midnight(today + timedelta(days=1), zone)
    try:
        found = AllTeams.of(start, end, now=now)
    except TookTooLong:
        return render(request, "billing/too_long.html", status=503)
    context = {"all": found, "periods": Period, "period": period, "zone": zone}
    return render(request, "billing/staff.html", context)
