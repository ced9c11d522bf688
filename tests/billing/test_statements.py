"""Monthly statements: a month to the last digit on one page, and by mail to those who were chosen, once."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core import mail
from django.db.models import Sum
from django.test import Client

from accounts.models import AuditEntry, Membership, Role, Team, User
from billing import statement_mail
from billing.models import Charge
from billing.pricing import format_points
from billing.rates import load_rates
from billing.report_models import StatementMail, StatementReader
from billing.statement_mail import mail_statements
from billing.statements import Month, Statement, months_of
from tests.billing.factories import make_rate, make_record, rate_all

pytestmark = pytest.mark.django_db
KATHMANDU = ZoneInfo("Asia/Kathmandu")
# October begins and ends at 18:15 UTC there.
OCTOBER = Month.parse("2026-10", KATHMANDU)
AFTER = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.fixture
def october(team: Team) -> int:
    """Requests of every day from September to November; October's picopoints."""
    load_rates()
    for number in range(70):
        make_record(
            team_id=team.pk,
            key_id=number % 3,
            model=["DeepSeek-V4-Flash", "Qwen3.8-27B", "house-model"][number % 3],
            started_at=datetime(2026, 9, 10, 18, 10, tzinfo=UTC) + timedelta(days=number, minutes=number % 10),
        )
    rate_all()
    assert OCTOBER
    within = Charge.objects.filter(
        record__started_at__gte=datetime(2026, 9, 30, 18, 15, tzinfo=UTC),
        record__started_at__lt=datetime(2026, 10, 31, 18, 15, tzinfo=UTC),
    )
    return int(within.aggregate(total=Sum("amount_ppt"))["total"])


def test_a_statement_is_the_months_charges_whichever_way_it_is_cut(browser: Client, team: Team, october: int) -> None:
    page = browser.get("/usage/statements/2026-10/")
    statement: Statement = page.context["statement"]
    assert statement.total.amount_ppt == october
    for _by, rows in statement.parts:
        assert sum(sums.amount_ppt for _, sums in rows) == october
    assert sum(line.sums.amount_ppt for line in statement.day_lines) == october
    assert len(statement.day_lines) == 31
    assert page.text.count(format_points(october)) >= 4
    assert "Asia/Kathmandu" in page.text
    assert "2026-10-01 00:00 – 2026-11-01 00:00" in page.text


def test_models_without_a_rate_are_named(browser: Client, october: int) -> None:
    assert "Used without a rate, and charged 0 so far: house-model." in browser.get("/usage/statements/2026-10/").text


def test_rates_are_those_of_the_month_with_their_changes(team: Team, october: int) -> None:
    assert OCTOBER
    make_rate(model="Qwen3.8-27B", meter="input", rate="9", effective_from=datetime(2026, 11, 20, tzinfo=UTC))
    lines = [line for line in Statement.of(team, OCTOBER, now=AFTER).rates if line.model == "Qwen3.8-27B"]
    # The card came into force on the 19th, a quarter to six in the morning there.
    assert [(str(line.since), sorted(line.rates)) for line in lines] == [
        ("2026-10-19 00:00:00+00:00", ["cache_read", "input", "output"])
    ]


def test_months_are_listed_from_the_first_with_usage(team: Team, october: int) -> None:
    listed = months_of(team, now=datetime(2026, 11, 30, tzinfo=UTC))
    assert [str(month) for month, _ in listed] == ["2026-11", "2026-10", "2026-09"]
    assert listed[1][1].amount_ppt == october
    assert months_of(Team.objects.create(name="B", time_zone="UTC"), now=AFTER) == []


@pytest.mark.parametrize("month", ["2026-13", "x", "0001-01", "2999-01", "2026-1", "2026-10-01"])
def test_what_is_no_month_yet_does_not_exist(browser: Client, month: str) -> None:
    assert browser.get(f"/usage/statements/{month}/").status_code == 404


def test_an_open_month_says_that_it_is_not_over(browser: Client, team: Team) -> None:
    load_rates()
    now = datetime.now(UTC)
    make_record(team_id=team.pk, started_at=now)
    page = browser.get(f"/usage/statements/{now.astimezone(KATHMANDU):%Y-%m}/").text
    assert "The month is not over" in page
    assert "1 request is not rated yet and not in it." in page


# -- by mail ------------------------------------------------------------------------------------


def choose(browser: Client, *people: User, language: str = "en") -> None:
    browser.cookies["tf_language"] = language
    answer = browser.post("/usage/statements/readers/", {"reader": [str(person.pk) for person in people]})
    assert answer["Location"] == "/usage/statements/"


def test_the_chosen_members_get_it_once_when_the_month_is_over(
    browser: Client, person: User, team: Team, october: int
) -> None:
    colleague = User.objects.create_user("an@example.com", name="An")
    Membership.objects.create(team=team, user=colleague, role=Role.VIEWER)
    choose(browser, person, colleague)
    end = datetime(2026, 10, 31, 18, 15, tzinfo=UTC)
    assert mail_statements(now=end + timedelta(hours=1)) == 0
    assert [mail_statements(now=end + timedelta(hours=2)) for _ in range(3)] == [2, 0, 0]
    assert sorted(one.to for one in mail.outbox) == [["an@example.com"], ["mei@example.com"]]
    sent: Any = mail.outbox[0]
    assert sent.subject == "Token Factory: statement of Mei for October 2026"
    assert format_points(october) in sent.body
    assert "/usage/statements/2026-10/" in sent.body
    assert format_points(october) in sent.alternatives[0].content
    file = sent.attachments[0]
    rows = list(csv.DictReader(StringIO(file.content.removeprefix("\ufeff"))))
    assert (file.filename, rows[-1]["points"]) == ("statement-2026-10.csv", format_points(october))
    # The next month's comes a month later.
    assert mail_statements(now=end + timedelta(days=31)) == 2


def test_each_reader_gets_the_language_it_was_chosen_in(browser: Client, person: User, october: int) -> None:
    choose(browser, person, language="zh-hans")
    mail_statements(now=AFTER)
    assert "2026年10月" in mail.outbox[0].subject


def test_who_has_left_or_was_taken_off_gets_none(browser: Client, person: User, team: Team, october: int) -> None:
    colleague = User.objects.create_user("an@example.com", name="An")
    membership = Membership.objects.create(team=team, user=colleague, role=Role.MEMBER)
    choose(browser, person, colleague)
    membership.delete()
    choose(browser, colleague)  # not a member any more
    assert mail_statements(now=AFTER) == 0
    assert not StatementReader.objects.exists()


def test_the_choice_is_in_the_audit_log_when_it_changes(browser: Client, person: User, team: Team) -> None:
    choose(browser, person)
    choose(browser, person)
    entries = AuditEntry.objects.filter(team=team, action="team.changed")
    assert [entry.details for entry in entries] == [{"statement readers": [[], ["Mei"]]}]


def test_only_owners_and_admins_choose(browser: Client, person: User, team: Team) -> None:
    Membership.objects.filter(user=person, team=team).update(role=Role.MEMBER)
    assert browser.post("/usage/statements/readers/", {"reader": [str(person.pk)]}).status_code == 403
    page = browser.get("/usage/statements/")
    assert "Owners and admins choose them." in page.text
    assert 'name="reader"' not in page.text


def test_a_statement_waits_for_the_last_requests_but_not_for_ever(
    browser: Client, person: User, team: Team, october: int
) -> None:
    choose(browser, person)
    make_record(team_id=team.pk, started_at=datetime(2026, 10, 31, 18, tzinfo=UTC))
    end = datetime(2026, 10, 31, 18, 15, tzinfo=UTC)
    assert mail_statements(now=end + timedelta(hours=3)) == 0
    assert mail_statements(now=end + timedelta(hours=25)) == 1


def test_a_mail_that_cannot_be_sent_is_tried_again(
    browser: Client, person: User, october: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(browser, person)

    def refuse(*_: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as broken:
        broken.setattr(statement_mail, "_mail", refuse)
        assert mail_statements(now=AFTER) == 0
    assert not StatementMail.objects.exists()
    assert mail_statements(now=AFTER) == 1


def test_a_month_without_requests_has_no_mail(browser: Client, person: User, team: Team) -> None:
    choose(browser, person)
    assert mail_statements(now=AFTER) == 0
