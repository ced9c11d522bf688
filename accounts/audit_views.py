"""/team/audit/: the team's audit log, and a person's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

from asgiref.sync import sync_to_async
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from accounts.access import right_required, team_required
from accounts.audit_log import AuditFilter, action_label, csv_parts, described
from accounts.middleware import TeamRequest
from accounts.models import AuditEntry
from accounts.rights import Right

ENTRIES_PER_PAGE = 50


@right_required(Right.READ_AUDIT)
@require_GET
def audit(request: TeamRequest) -> HttpResponse:
    with timezone.override(request.team.time_zone):
        form = AuditFilter(request.GET, team=request.team)
        listing = _listed(request, form.found())
        return render(request, "accounts/audit.html", {"form": form, "listing": listing})


@right_required(Right.READ_AUDIT)
@require_GET
async def audit_csv(request: TeamRequest) -> StreamingHttpResponse:
    entries = await sync_to_async(lambda: AuditFilter(request.GET, team=request.team).found())()
    return StreamingHttpResponse(
        _streamed(entries),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="audit.csv"', "Cache-Control": "no-store"},
    )


async def _streamed(entries: QuerySet[AuditEntry]) -> AsyncIterator[str]:
    parts = csv_parts(entries)
    while (text := await sync_to_async(partial(next, parts, None))()) is not None:
        yield text


@team_required
@require_GET
def activity(request: TeamRequest) -> HttpResponse:
    """What happened to one's own account, for its owner alone."""
    entries = AuditEntry.objects.filter(team=None, object_type="user", object_id=request.user.pk)
    return render(request, "accounts/activity.html", {"listing": _listed(request, entries)})


def _listed(request: TeamRequest, entries: QuerySet[AuditEntry]) -> Page[AuditEntry]:
    page = Paginator(entries, ENTRIES_PER_PAGE).get_page(request.GET.get("page"))
    for entry in page:
        entry.label = action_label(entry)  # type: ignore[attr-defined]
        entry.changes = described(entry)  # type: ignore[attr-defined]
    return page
