"""Usage: the report by day, its export, and the single requests behind it."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from asgiref.sync import sync_to_async
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts.access import team_required
from accounts.middleware import TeamRequest
from accounts.models import User
from billing.charts import Chart, bucket_label, stacked_bars
from billing.exports import csv_chunks
from billing.models import Meter, Repricing, UsageRecord
from billing.pricing import Metered
from billing.reports import GroupBy, UsageReport, day_totals
from billing.repricing import parts_of
from billing.request_log import Cursor, find_request, log_page, records_of
from billing.usage_choice import Period, UsageChoice


@team_required
@require_GET
def usage(request: TeamRequest) -> HttpResponse:
    team_id, zone, now = request.team.pk, ZoneInfo(request.team.time_zone), timezone.now()
    choice = UsageChoice.read(request.GET.dict(), zone=zone, now=now)
    report = choice.query(team_id, zone).run()
    chart = stacked_bars(report)
    context = {
        "choice": choice,
        "periods": Period,
        "groupings": GroupBy,
        "report": report,
        "chart": chart,
        "days": [_day(report, bucket, chart) for bucket in reversed(report.buckets)],
        "groups": [
            {"label": group.label, "sums": report.by_group[group.key], "narrow": {choice.group_by.value: group.key[0]}}
            for group in report.groups
        ],
        "narrowed": _narrowed(report),
        "zone": zone,
        "waiting": records_of(team_id).filter(rated_at=None).count(),
    }
    if request.htmx and not request.htmx.history_restore_request:
        return render(request, "billing/usage.html#report", context)
    totals = {"today": day_totals(team_id, zone, days=1, now=now), "month": day_totals(team_id, zone, days=30, now=now)}
    return render(request, "billing/usage.html", context | totals)


def _day(report: UsageReport, bucket: datetime, chart: Chart) -> dict[str, Any]:
    """One line of the table under the chart: a column for each colour, and their sum."""
    shown = report.groups[: len(chart.series) - 1] if len(report.groups) > len(chart.series) else report.groups
    amounts = [report.cell(bucket, group).amount_ppt for group in shown]
    total = report.by_bucket.get(bucket)
    amount_ppt = total.amount_ppt if total else 0
    if len(shown) < len(chart.series):
        amounts.append(amount_ppt - sum(amounts))
    return {
        "label": bucket_label(bucket, report),
        "amounts": amounts,
        "amount_ppt": amount_ppt,
        "requests": total.requests if total else 0,
    }


def _narrowed(report: UsageReport) -> list[dict[str, Any]]:
    """The filters in force, as a person reads them, and what takes each away."""
    return [
        {"by": by.label, "value": report.label_of(by, value), "widen": {by.value: None}}
        for by, value in report.query.filters.items()
    ]


@team_required
@require_GET
async def export(request: TeamRequest) -> HttpResponseBase:
    zone = ZoneInfo(request.team.time_zone)
    choice = UsageChoice.read(request.GET.dict(), zone=zone, now=timezone.now())
    report = await sync_to_async(_prepared)(choice, request.team.pk, zone)
    name = f"usage_{choice.first}_{choice.last}_by_{choice.group_by}.csv"
    return StreamingHttpResponse(
        csv_chunks(report),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
    )


def _prepared(choice: UsageChoice, team_id: int, zone: ZoneInfo) -> UsageReport:
    report = choice.query(team_id, zone).run()
    # Names are looked up here: the stream itself asks the database nothing.
    _ = report.groups
    return report


@team_required
@require_GET
def request_log(request: TeamRequest) -> HttpResponse:
    sought = request.GET.get("q", "").strip()
    if sought:
        record = find_request(request.team.pk, sought)
        if record:
            return redirect("billing:request", record.id)
    page = log_page(request.team.pk, below=Cursor.parse(request.GET.get("below", "")))
    keys = request.team.api_keys.in_bulk({row.record.key_id for row in page.requests})
    context = {
        "rows": [(row, keys.get(row.record.key_id)) for row in page.requests],
        "older": page.older,
        "sought": sought,
        "is_first": not request.GET.get("below"),
        "zone": ZoneInfo(request.team.time_zone),
    }
    return render(request, "billing/requests.html", context)


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


def _durations(record: UsageRecord) -> dict[str, float | None]:
    first_byte = (record.first_byte_at - record.started_at).total_seconds() if record.first_byte_at else None
    return {
        "first_byte_seconds": first_byte,
        "total_seconds": (record.finished_at - record.started_at).total_seconds(),
    }
