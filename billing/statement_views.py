"""Monthly statements: the list of months, one month to read and to print, and who gets it by mail."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import get_language, gettext
from django.views.decorators.http import require_GET, require_POST

from accounts.access import in_the_team_shown, right_required, team_required
from accounts.audit import Actor
from accounts.middleware import TeamRequest
from accounts.models import Membership
from accounts.rights import Right
from billing.report_models import StatementReader
from billing.snapshots import TookTooLong
from billing.statement_mail import choose_readers
from billing.statements import Month, Statement, months_of


@team_required
@require_GET
def statements(request: TeamRequest) -> HttpResponse:
    """The months, and the members with whether they get each by mail."""
    chosen = set(StatementReader.objects.filter(team=request.team).values_list("user_id", flat=True))
    members = Membership.objects.filter(team=request.team).select_related("user").order_by("user__name", "user__email")
    context = {
        "months": months_of(request.team, now=timezone.now()),
        "zone": ZoneInfo(request.team.time_zone),
        "members": [(member.user, member.user_id in chosen) for member in members],
    }
    return render(request, "billing/statements.html", context)


@team_required
@require_GET
def statement(request: TeamRequest, month: str) -> HttpResponse:
    now = timezone.now()
    asked = Month.parse(month, ZoneInfo(request.team.time_zone))
    if asked is None or asked.start > now:
        raise Http404
    try:
        found = Statement.of(request.team, asked, now=now)
    except TookTooLong:
        return render(request, "billing/too_long.html", status=503)
    context = {"statement": found, "following": asked.following if asked.following.start <= now else None}
    return render(request, "billing/statement.html", context)


@right_required(Right.CHANGE_SETTINGS)
@in_the_team_shown
@require_POST
def statement_readers(request: TeamRequest) -> HttpResponse:
    chosen = {
        int(text) for text in request.POST.getlist("reader") if text.isascii() and text.isdigit() and len(text) < 19
    }
    choose_readers(team=request.team, user_ids=chosen, language=get_language() or "en", actor=Actor.of(request))
    messages.success(request, gettext("Saved. The statements go out when a month is over."))
    return redirect("billing:statements")
