"""Each month's statement by mail, to the members who were chosen for it: once each, when the month is over."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from itertools import chain
from zoneinfo import ZoneInfo

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import transaction
from django.template.loader import render_to_string
from django.utils import translation

from accounts.audit import Action, Actor, record
from accounts.models import Membership, Team, User
from billing.cells import SUMMED_AFTER_SECONDS
from billing.exports import csv_parts
from billing.models import UsageRecord
from billing.report_models import StatementMail, StatementReader
from billing.statements import Month, Statement

logger = logging.getLogger(__name__)
# What is not rated by then will not be soon; the statement says that it waits.
PATIENCE = timedelta(hours=24)


@transaction.atomic
def choose_readers(*, team: Team, user_ids: set[int], language: str, actor: Actor) -> None:
    """From now on the statements go to these members, in this language; others get them no more."""
    members = set(Membership.objects.filter(team=team, user_id__in=user_ids).values_list("user_id", flat=True))
    readers = StatementReader.objects.filter(team=team)
    before = set(readers.values_list("user_id", flat=True))
    readers.exclude(user_id__in=members).delete()
    for user_id in sorted(members):
        StatementReader.objects.update_or_create(team=team, user_id=user_id, defaults={"language": language})
    if members != before:
        names = {user.pk: str(user) for user in User.objects.filter(pk__in=members | before)}
        details = {"statement readers": [sorted(names[pk] for pk in before), sorted(names[pk] for pk in members)]}
        record(actor=actor, action=Action.TEAM_CHANGED, team=team, object=team, details=details)


def mail_statements(*, now: datetime) -> int:
    """Send what is due; returns the number of mails. Whoever notes a mail first sends it."""
    sent = 0
    for team in Team.objects.filter(statement_readers__isnull=False).distinct().order_by("pk"):
        month = Month.at(now, ZoneInfo(team.time_zone)).before
        if _is_ready(team, month, now):
            sent += _mail_team(team, month, now)
    return sent


def readers_of(team: Team) -> list[StatementReader]:
    """Those chosen who are members still."""
    members = Membership.objects.filter(team=team, user__is_active=True).values("user_id")
    return list(StatementReader.objects.filter(team=team, user_id__in=members).select_related("user").order_by("pk"))


def _is_ready(team: Team, month: Month, now: datetime) -> bool:
    """The month's last requests are in the sums, or have had a day for it."""
    if now < month.end + timedelta(seconds=SUMMED_AFTER_SECONDS):
        return False
    if now >= month.end + PATIENCE:
        return True
    return not UsageRecord.objects.filter(
        team_id=team.pk, rated_at=None, started_at__gte=month.start, started_at__lt=month.end
    ).exists()


def _mail_team(team: Team, month: Month, now: datetime) -> int:
    noted = StatementMail.objects.filter(team_id=team.pk, month=month.first)
    known = set(noted.values_list("user_id", flat=True))
    due = [reader for reader in readers_of(team) if reader.user_id not in known]
    if not due:
        return 0
    statement, sent = Statement.of(team, month, now=now), 0
    if not statement.total.requests:
        return 0
    file = "".join(chain(["\ufeff"], csv_parts(statement.file_query)))
    for reader in due:
        note, made = noted.get_or_create(team_id=team.pk, user_id=reader.user_id, month=month.first)
        if not made:
            continue
        try:
            _mail(statement, reader, file)
        except OSError:
            logger.exception("A statement of team %s could not be sent; it is tried again", team.pk)
            note.delete()
            continue
        sent += 1
    return sent


def _mail(statement: Statement, reader: StatementReader, file: str) -> None:
    context = {"statement": statement, "site_name": settings.SITE_NAME, "site_url": settings.SITE_URL}
    with translation.override(reader.language):
        subject = " ".join(render_to_string("email/statement_subject.txt", context).split())
        text = render_to_string("email/statement.txt", context)
        html = render_to_string("email/statement.html", context)
    mail = EmailMultiAlternatives(subject, text, to=[reader.user.email])
    mail.attach_alternative(html, "text/html")
    mail.attach(f"statement-{statement.month}.csv", file, "text/csv")
    mail.send()
