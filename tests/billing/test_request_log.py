"""The log of requests: its filters find every request of the kind, rated or not, and its export has each once."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db.models import Q, Sum
from django.test import Client

from accounts.models import ApiKey, Team, User
from billing import request_log
from billing.day_sums import sum_days
from billing.log_choice import LogChoice
from billing.models import Charge, Outcome, UsageRecord
from billing.pricing import PPT_PER_POINT
from billing.rates import load_rates
from billing.readings import GroupBy
from billing.request_log import Cursor, LogFilter, Status, log_page
from tests.billing.factories import make_record, rate_all
from tests.billing.test_usage_page import exported

START = datetime(2026, 11, 1, tzinfo=UTC)


def every_page(team_id: int, wanted: LogFilter, *, size: int = 7) -> list[UsageRecord]:
    found: list[UsageRecord] = []
    below: Cursor | None = None
    while True:
        page = log_page(team_id, wanted=wanted, below=below, size=size)
        found += [row.record for row in page.requests]
        if not page.older:
            return found
        below = Cursor.parse(page.older)
        assert below


@pytest.fixture
def requests(team: Team) -> list[UsageRecord]:
    """Of ten days, of all kinds; the last tenth waits to be rated, the first days are summed."""
    load_rates()
    chance = random.Random(3)
    moments = sorted(START + timedelta(seconds=chance.randrange(10 * 86_400)) for _ in range(150))
    made = [
        make_record(
            team_id=team.pk,
            key_id=chance.randrange(3),
            member_id=chance.randrange(3),
            model=chance.choice(["DeepSeek-V4-Flash", "Qwen3.8-27B", "house-model"]),
            endpoint=chance.choice(["chat", "messages"]),
            source=chance.choice(["api", "playground"]),
            status=chance.choice([200, 200, 200, 429, 502]),
            outcome=chance.choice(list(Outcome)),
            estimated=chance.random() < 0.1,
            started_at=at,
        )
        for at in moments
    ]
    make_record(team_id=team.pk + 1, started_at=START)
    rate_all(limit=45)
    waiting = [record.pk for record in made[-15:]]
    UsageRecord.objects.filter(pk__in=waiting).update(rated_at=None)
    sum_days(now=START + timedelta(days=7))
    return list(UsageRecord.objects.filter(team_id=team.pk).order_by("-started_at", "-id"))


COLUMNS: list[dict[GroupBy, Any]] = [
    {},
    {GroupBy.MODEL: "Qwen3.8-27B"},
    {GroupBy.KEY: 1},
    {GroupBy.MEMBER: 2, GroupBy.MODEL: "house-model"},
    {GroupBy.ENDPOINT: "messages", GroupBy.SOURCE: "api"},
    {GroupBy.MODEL: "never used"},
]


@pytest.mark.django_db
def test_filters_find_what_a_look_at_each_request_finds(requests: list[UsageRecord], team: Team) -> None:
    start, end = START + timedelta(days=1), START + timedelta(days=9, hours=20)
    for columns, status in itertools.product(COLUMNS, [None, *Status]):
        named = {by.column: value for by, value in columns.items()}
        due = UsageRecord.objects.filter(team_id=team.pk, started_at__gte=start, started_at__lt=end, **named)
        due = (due.filter(status.condition) if status else due).order_by("-started_at", "-id")
        assert every_page(team.pk, LogFilter(start, end, columns, status)) == list(due), (columns, status)


def test_each_status_means_what_it_says() -> None:
    assert Status.ERROR.is_counted_as_error
    assert not Status.OK.is_counted_as_error


@pytest.mark.django_db
def test_failed_and_completed_are_everything_but_what_was_cut(requests: list[UsageRecord], team: Team) -> None:
    counts = {status: len(every_page(team.pk, LogFilter(status=status))) for status in Status}
    refused = [record for record in requests if not 200 <= record.status < 300]
    assert counts[Status.ERROR] == len({*refused, *(one for one in requests if one.outcome == Outcome.ERROR)})
    assert counts[Status.OK] == sum(one.outcome == Outcome.OK and one.status == 200 for one in requests)


@pytest.mark.django_db
def test_a_search_that_runs_out_of_time_says_from_where_to_go_on(
    requests: list[UsageRecord], team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "SEARCH_SECONDS", -1)
    wanted = LogFilter(columns={GroupBy.MODEL: "Qwen3.8-27B"})
    page = log_page(team.pk, wanted=wanted)
    assert page.is_cut
    assert every_page(team.pk, wanted, size=50) == [one for one in requests if one.model == "Qwen3.8-27B"]


def test_neighbouring_quarters_are_one_stretch_and_a_mark_alone_asks_for_one() -> None:
    first, second, fourth = (START + minutes * timedelta(minutes=15) for minutes in (0, 1, 3))
    end = fourth + timedelta(minutes=15)
    quarters = [fourth, second, first]
    of_key = LogFilter(columns={GroupBy.KEY: 1})
    assert request_log._within(of_key, quarters) == Q(started_at__gte=fourth, started_at__lt=end) | Q(
        started_at__gte=first, started_at__lt=second + timedelta(minutes=15)
    )
    estimated = LogFilter(status=Status.ESTIMATED)
    assert request_log._within(estimated, quarters) == Q(started_at__gte=first, started_at__lt=end)
    # Sums tell where failures are.
    assert request_log._within(LogFilter(status=Status.ERROR), quarters) == request_log._within(of_key, quarters)


@pytest.mark.django_db
def test_the_log_tells_pages_and_characters_where_there_are_no_tokens(browser: Client, team: Team) -> None:
    make_record(team_id=team.pk, endpoint="ocr", pages=3, prompt_tokens=0)
    make_record(team_id=team.pk, endpoint="speech", characters=1_234, prompt_tokens=0)
    page = browser.get("/usage/requests/").text
    assert "3 pages" in page
    assert "1,234 characters" in page


@pytest.mark.django_db
def test_the_page_offers_what_was_used_and_keeps_what_was_chosen(
    browser: Client, requests: list[UsageRecord], team: Team
) -> None:
    page = browser.get("/usage/requests/?model=house-model&status=error&start=2026-11-02&end=2026-11-05T12:00")
    choice = page.context["choice"]
    assert (choice.start_text, choice.end_text) == ("2026-11-02T00:00", "2026-11-05T12:00")
    assert choice.zone.key == "Asia/Kathmandu"
    assert '<option value="house-model" selected>' in page.text
    assert '<option value="error" selected>' in page.text
    assert {row.record.model for row, _ in page.context["rows"]} == {"house-model"}
    nothing = browser.get("/usage/requests/?model=never")
    assert "No such requests" in nothing.text


@pytest.mark.parametrize(
    "values",
    [
        {"start": "x"},
        {"end": "0001-01-01"},
        {"start": "9999-12-31T23:59"},
        {"key": "-1"},
        {"status": "gone"},
        {"tz": "x"},
    ],
)
def test_nonsense_in_the_address_is_no_filter(values: dict[str, str]) -> None:
    assert LogChoice.read(values, zone=ZoneInfo("Asia/Kathmandu")).is_any


@pytest.mark.django_db
def test_the_export_has_each_request_once_and_its_points(
    person: User, requests: list[UsageRecord], team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.log_export.REQUESTS_AT_A_TIME", 40)
    ApiKey.objects.create(pk=1, team=team, name="=1+1", digest="0" * 64, prefix="rc-1", last_four="abcd")
    *rows, total = exported(person, "/usage/requests/export.csv")
    assert [row["request_id"] for row in rows] == [str(record.id) for record in requests]
    assert {row["key"] for row in rows if row["key_id"] == "1"} == {"'=1+1 (rc-1…abcd)"}
    rated = Charge.objects.filter(record__team_id=team.pk, record__rated_at__isnull=False)
    charged = rated.aggregate(total=Sum("amount_ppt"))["total"]
    assert int(Decimal(total["points"]) * PPT_PER_POINT) == charged
    assert sum(int(Decimal(row["points"]) * PPT_PER_POINT) for row in rows if row["rated"] == "yes") == charged
    assert {row["points"] for row in rows if row["rated"] == "no"} == {""}
    narrow = exported(person, "/usage/requests/export.csv?model=Qwen3.8-27B&status=estimated")
    due = [one for one in requests if one.model == "Qwen3.8-27B" and one.estimated]
    assert [row["request_id"] for row in narrow[:-1]] == [str(record.id) for record in due]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"estimated": True}, "reported no usage"),
        ({"model": "house-model"}, "had no rate when it began"),
        ({"outcome": "interrupted", "status": 0}, "was killed while this request was under way"),
        ({"outcome": "interrupted"}, "the server ended while this answer was under way"),
        ({"outcome": "client_gone"}, "The caller left before the end"),
        ({"outcome": "stopped"}, "The answer was stopped before its end"),
        ({"source": "dedicated"}, "cost no points"),
    ],
)
def test_what_is_particular_about_a_request_is_explained(
    browser: Client, team: Team, changes: dict[str, Any], text: str
) -> None:
    load_rates()
    record = make_record(team_id=team.pk, **changes)
    rate_all()
    assert text in browser.get(f"/usage/requests/{record.id}/").text
