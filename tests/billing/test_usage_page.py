"""The usage page and its export show the same exact sums, of the reader's own team only."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db.models import Sum
from django.test import AsyncClient, Client
from django.utils import timezone

from accounts.models import ApiKey, Team, User
from accounts.spreadsheet import safe_cell
from billing.charts import nice_step
from billing.models import Charge
from billing.pricing import PPT_PER_POINT, format_points
from billing.rates import load_rates
from tests.billing.factories import make_rate, make_record, rate_all

MODELS = ["DeepSeek-V4-Flash", "Qwen3.8-27B", "GLM-5.3-Flash"]


@pytest.fixture
def usage(team: Team) -> int:
    """Forty requests over the last twenty days, one in ten failed, and a stranger's; the team's picopoints."""
    load_rates()
    now = timezone.now()
    for number in range(40):
        make_record(
            team_id=team.pk,
            model=MODELS[number % 3],
            prompt_tokens=1_000 + 13 * number,
            key_id=number % 4,
            outcome="error" if number % 10 == 9 else "ok",
            status=502 if number % 10 == 9 else 200,
            started_at=now - timedelta(hours=11) * number,
        )
    make_record(team_id=team.pk + 1, model="strangers-model", started_at=now)
    rate_all()
    charged = Charge.objects.filter(record__team_id=team.pk).aggregate(total=Sum("amount_ppt"))["total"]
    return int(charged)


def exported(person: User, address: str) -> list[dict[str, str]]:
    """The rows of the export, fetched as the server streams it."""

    async def fetch() -> Any:
        client = AsyncClient()
        await client.aforce_login(person)
        response: Any = await client.get(address)
        return response, b"".join([chunk async for chunk in response.streaming_content])

    response, content = async_to_sync(fetch)()
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    # With a mark for spreadsheets, which take the file for another encoding without it.
    return list(csv.DictReader(StringIO(content.decode("utf-8-sig"))))


def picopoints(text: str) -> int:
    return int(Decimal(text) * PPT_PER_POINT)


@pytest.mark.parametrize("address", ["/usage/", "/usage/requests/", f"/usage/requests/{'0' * 32}/"])
@pytest.mark.django_db
def test_a_stranger_is_sent_to_the_sign_in(client: Client, address: str) -> None:
    address = address.replace("0" * 32, "00000000-0000-4000-8000-000000000000")
    answer = client.get(address)
    assert (answer.status_code, answer["Location"]) == (302, f"/accounts/login/?next={address}")


@pytest.mark.django_db
def test_screen_and_export_and_charges_agree(browser: Client, person: User, usage: int) -> None:
    for group in ("model", "key", "member", "endpoint", "source"):
        page = browser.get(f"/usage/?period=30&group={group}")
        assert page.context["report"].total.amount_ppt == usage
        assert sum(row.sums.amount_ppt for row in page.context["rows"].rows) == usage
        assert sum(sum(row.amounts) for row in page.context["rows"].rows) == usage
        assert sum(row.sums.amount_ppt for row in page.context["groups"].rows) == usage
        assert sum(series.sums.amount_ppt for series in page.context["chart"].series) == usage
        assert format_points(usage) in page.text
        *rows, total = exported(person, f"/usage/export.csv?period=30&group={group}")
        assert total["start"] == "total"
        assert picopoints(total["points"]) == usage
        assert sum(picopoints(row["points"]) for row in rows) == usage
        assert sum(int(row["requests"]) for row in rows) == int(total["requests"]) == 40
        assert sum(int(row["errors"]) for row in rows) == int(total["errors"]) == 4


@pytest.mark.django_db
def test_no_day_is_missing_from_the_export(person: User, usage: int) -> None:
    *rows, _total = exported(person, "/usage/export.csv?period=90")
    days = {row["start"] for row in rows}
    assert len(days) == 90
    assert all(day.endswith("T00:00:00+05:45") for day in days)
    assert {row["time_zone"] for row in rows} == {"Asia/Kathmandu"}


@pytest.mark.django_db
def test_the_page_names_its_zone_and_no_other_teams_usage(browser: Client, usage: int) -> None:
    page = browser.get("/usage/").text
    assert "Asia/Kathmandu" in page
    assert "strangers-model" not in page


@pytest.mark.django_db
def test_a_period_and_grouping_swap_the_report_alone(browser: Client, usage: int) -> None:
    answer = browser.get("/usage/?period=7&group=key", headers={"HX-Request": "true"})
    assert "<html" not in answer.text
    assert answer.text.count('aria-current="true"') == 3
    assert "HX-Request" in answer["Vary"]
    whole = browser.get("/usage/?period=7&group=key")
    assert "<html" in whole.text
    assert answer.text.strip() in whole.text


@pytest.mark.django_db
def test_today_is_shown_by_the_hour(browser: Client, usage: int) -> None:
    page = browser.get("/usage/?period=1")
    assert page.context["report"].query.interval == "hour"
    assert len(page.context["rows"].rows) == 24


@pytest.mark.django_db
def test_a_row_narrows_the_report_and_the_filter_can_be_taken_away(browser: Client, usage: int) -> None:
    page = browser.get("/usage/?model=Qwen3.8-27B&group=key")
    assert page.context["report"].total.requests == 13
    assert [filter.href for filter in page.context["page"].filters] == ["?group=key"]
    assert page.context["groups"].rows[0].href == "?model=Qwen3.8-27B&group=key&key=1"


@pytest.mark.parametrize(
    "query",
    [
        "period=9",
        "group=x",
        "key=abc",
        "key=99999999999999999999",
        "start=2026-01-01",
        "start=x&end=y",
        "start=0001-01-01&end=0001-01-02",
        "member=-1",
        "interval=week",
        "interval=hour",
        "tz=Mars/Olympus",
        "tz=../../etc/passwd",
        "groups=-1&rows=x",
        "groups=99999&rows=99999",
    ],
)
@pytest.mark.django_db
def test_nonsense_in_the_address_becomes_the_default(browser: Client, query: str) -> None:
    page = browser.get(f"/usage/?{query}")
    assert page.status_code == HTTPStatus.OK
    assert len(page.context["rows"].rows) == 30
    assert page.context["zone"].key == "Asia/Kathmandu"


@pytest.mark.django_db
def test_an_address_may_name_its_own_days(browser: Client, usage: int) -> None:
    page = browser.get("/usage/?start=2026-10-01&end=2026-10-04")
    assert len(page.context["rows"].rows) == 4
    assert page.context["choice"].period is None


@pytest.mark.django_db
def test_more_groups_than_colours_share_the_last(browser: Client, team: Team) -> None:
    for key_id in range(12):
        make_record(team_id=team.pk, key_id=key_id, started_at=timezone.now())
    load_rates()
    rate_all()
    page = browser.get("/usage/?group=key")
    chart = page.context["chart"]
    assert [series.number for series in chart.series] == list(range(1, 9))
    assert chart.series[-1].label == "5 others"
    today = page.context["rows"].rows[0]
    assert len(today.amounts) == 8
    assert sum(today.amounts) == 12 * 141_120_000
    assert chart.series[-1].sums.requests == 5


@pytest.mark.django_db
def test_the_chart_carries_its_numbers_and_no_inline_style(browser: Client, usage: int) -> None:
    page = browser.get("/usage/").text
    svg = page[page.index('<svg class="chart"') : page.index("</svg>", page.index('<svg class="chart"'))]
    assert "style=" not in svg
    titles = re.findall(r'<a class="chart-hit"[^>]*><title>([^<]+)</title>', svg)
    assert len(titles) == 30
    lines = [line.rpartition(": ")[::2] for title in titles for line in title.split("\n")[1:]]
    assert sum(picopoints(value) for name, value in lines if name in MODELS) == usage
    assert sum(picopoints(value) for name, value in lines if name == "Total") == usage


@pytest.mark.django_db
def test_a_bar_leads_to_its_day_and_an_hour_to_its_requests(browser: Client, team: Team) -> None:
    load_rates()
    make_record(team_id=team.pk, started_at=datetime(2026, 10, 25, 10, 50, tzinfo=UTC), model="Qwen3.8-27B")
    make_record(team_id=team.pk, started_at=datetime(2026, 10, 25, 12, 50, tzinfo=UTC))
    rate_all()
    months = browser.get("/usage/?start=2026-01-01&end=2026-11-20&model=Qwen3.8-27B")
    assert months.context["report"].query.interval == "month"
    days = browser.get("/usage/" + _addressed(months, "2026-10"))
    assert (days.context["report"].query.interval, len(days.context["rows"].rows)) == ("day", 31)
    hours = browser.get("/usage/" + _addressed(days, "2026-10-25"))
    assert (hours.context["report"].query.interval, len(hours.context["rows"].rows)) == ("hour", 24)
    log = browser.get(_addressed(hours, "2026-10-25 16:00"))
    assert [row.record.model for row, _ in log.context["rows"]] == ["Qwen3.8-27B"]
    assert log.context["choice"].start_text == "2026-10-25T16:00"


def _addressed(page: Any, label: str) -> str:
    """Where the row of a bucket leads."""
    labels = {"2026-10": "October 2026"}
    return str(next(row.href for row in page.context["rows"].rows if row.label == labels.get(label, label)))


@pytest.mark.django_db
def test_any_zone_can_be_read(browser: Client, person: User, team: Team) -> None:
    load_rates()
    # Midnight in India; a quarter past in Nepal.
    make_record(team_id=team.pk, started_at=datetime(2026, 11, 9, 18, 30, tzinfo=UTC))
    rate_all()
    for zone, day in (("Asia/Kolkata", "2026-11-10"), ("UTC", "2026-11-09"), ("Australia/Lord_Howe", "2026-11-10")):
        query = f"start=2026-11-09&end=2026-11-10&interval=day&tz={zone}"
        page = browser.get(f"/usage/?{query}")
        used = [row.label for row in page.context["rows"].rows if row.sums.requests]
        assert (used, page.context["zone"].key) == ([day], zone)
        exported_days = [row["start"][:10] for row in exported(person, f"/usage/export.csv?{query}") if row["model"]]
        assert exported_days == [day]


@pytest.mark.django_db
def test_the_period_before_is_as_long_and_ends_at_the_same_hour(browser: Client, team: Team) -> None:
    load_rates()
    now = timezone.now()
    for hours in (1, 23, 25, 47, 49):
        make_record(team_id=team.pk, started_at=now - timedelta(hours=hours))
    rate_all()
    page = browser.get("/usage/?period=1").context["page"]
    query, before = page.report.query, page.before.query
    assert query.start - before.start == timedelta(days=1)
    assert timedelta() <= (now - timedelta(days=1)) - before.end < timedelta(minutes=16)
    whole = browser.get(f"/usage/?start={now - timedelta(days=9):%Y-%m-%d}&end={now - timedelta(days=8):%Y-%m-%d}")
    query, before = whole.context["page"].report.query, whole.context["page"].before.query
    assert (before.end, before.end - before.start) == (query.start, timedelta(days=2))


@pytest.mark.django_db
def test_changes_are_said_in_per_cent(browser: Client, team: Team) -> None:
    load_rates()
    for day, count in (("2026-11-02", 2), ("2026-11-03", 3)):
        for _ in range(count):
            make_record(team_id=team.pk, started_at=datetime.fromisoformat(f"{day}T10:00:00+00:00"))
    rate_all()
    page = browser.get("/usage/?start=2026-11-03&end=2026-11-03")
    assert "+50.0 % on the period before (0.00028224)" in " ".join(page.text.split())
    assert [row.change for row in page.context["groups"].rows] == ["+50.0 %"]


@pytest.mark.django_db
def test_a_long_table_comes_in_parts_that_make_the_whole(browser: Client, team: Team) -> None:
    load_rates()
    for key_id in range(1, 120):
        make_record(team_id=team.pk, key_id=key_id, prompt_tokens=1_000 + key_id, started_at=timezone.now())
    rate_all()
    address, seen = "?group=key", []
    while address:
        part = browser.get(f"/usage/{address}").context["groups"]
        seen += [row.label for row in part.rows]
        address = part.following
    # Most points first.
    assert seen == [str(key_id) for key_id in range(119, 0, -1)]


@pytest.mark.django_db
def test_opening_the_page_reads_sums_and_no_requests(
    browser: Client, usage: int, django_assert_max_num_queries: Any
) -> None:
    for address in ("/usage/", "/usage/?group=key&period=90", "/usage/?model=Qwen3.8-27B&group=member"):
        with django_assert_max_num_queries(24) as captured:
            browser.get(address)
        for query in captured.captured_queries:
            # What waits to be rated is in no sum yet, and has an index of its own.
            is_of_waiting = '"rated_at" IS NULL' in query["sql"]
            assert is_of_waiting or not re.search("usagerecord|billing_charge", query["sql"])


@pytest.mark.django_db
def test_an_empty_period_teaches(browser: Client) -> None:
    page = browser.get("/usage/").text
    assert "Nothing used in this period" in page
    assert '<svg class="chart"' not in page


@pytest.mark.django_db
def test_names_that_a_spreadsheet_would_run_are_harmless(person: User, team: Team) -> None:
    key = ApiKey.objects.create(
        team=team, name='=HYPERLINK("http://x"), a', digest="0" * 64, prefix="rc-1", last_four="abcd"
    )
    make_record(team_id=team.pk, key_id=key.pk, started_at=timezone.now())
    load_rates()
    rate_all()
    *_, row, _total = exported(person, "/usage/export.csv?group=key")
    assert row["key"] == '\'=HYPERLINK("http://x"), a (rc-1…abcd)'
    assert row["key_id"] == str(key.pk)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", " =", "\ufeff-"])
def test_a_cell_that_begins_like_a_formula_is_text(start: str) -> None:
    assert safe_cell(f"{start}1") == f"'{start}1"
    assert safe_cell(12) == "12"


@pytest.mark.parametrize(("highest", "step"), [(0, 1), (1, 1), (4, 1), (5, 2), (9, 5), (141_120_000, 50_000_000)])
def test_the_axis_has_round_steps(highest: int, step: int) -> None:
    assert nice_step(highest) == step


# -- single requests ----------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_log_pages_through_every_request_once(browser: Client, team: Team) -> None:
    moment = datetime(2026, 11, 1, 10, tzinfo=UTC)
    # Many of the same moment: the id decides among them.
    made = [make_record(team_id=team.pk, started_at=moment + timedelta(seconds=n // 60)) for n in range(130)]
    make_record(team_id=team.pk + 1)
    seen: list[Any] = []
    address = "/usage/requests/"
    while address:
        page = browser.get(address)
        seen += [row.record for row, _key in page.context["rows"]]
        older = page.context["page"].older
        address = f"/usage/requests/?below={older.replace('+', '%2B')}" if older else ""
    assert [record.id for record in seen] == [
        record.id for record in sorted(made, key=lambda record: (record.started_at, record.id), reverse=True)
    ]


@pytest.mark.django_db
def test_a_request_shows_what_it_cost_meter_by_meter(browser: Client, team: Team) -> None:
    load_rates()
    make_rate(model="M", meter="input", rate="1", effective_from=datetime(2026, 1, 1, tzinfo=UTC))
    record = make_record(team_id=team.pk, usage={"prompt_tokens": 1_000, "note": "<b>"})
    page = browser.get(f"/usage/requests/{record.id}/").text
    assert "not rated yet" in page
    rate_all()
    page = browser.get(f"/usage/requests/{record.id}/").text
    for text in ("× 0.00000014", "= 0.000084", "= 0.00000112", "= 0.000056", "0.00014112", "15:52:30"):
        assert text in page
    assert "&lt;b&gt;" in page
    assert "0.00014112" in browser.get("/usage/requests/").text


@pytest.mark.django_db
def test_a_request_is_found_by_its_id_and_only_by_its_own_team(browser: Client, team: Team) -> None:
    mine, other = make_record(team_id=team.pk), make_record(team_id=team.pk + 1)
    for text in (str(mine.id), mine.id.hex, f' "{mine.id}" '):
        answer = browser.get("/usage/requests/", {"q": text})
        assert answer["Location"] == f"/usage/requests/{mine.id}/"
    for text in (str(other.id), "nonsense", "<script>"):
        answer = browser.get("/usage/requests/", {"q": text})
        assert answer.status_code == HTTPStatus.OK
        assert "No request of this team has the id" in answer.text
        assert "<script>" not in answer.text.partition("<main")[2].partition("</main>")[0]
    assert browser.get(f"/usage/requests/{other.id}/").status_code == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("below", ["x", "2026-11-01_zz", "2026-11-01T00:00:00_" + "0" * 32])
@pytest.mark.django_db
def test_a_broken_cursor_is_the_first_page(browser: Client, team: Team, below: str) -> None:
    make_record(team_id=team.pk)
    assert len(browser.get("/usage/requests/", {"below": below}).context["rows"]) == 1
