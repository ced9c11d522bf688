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
from billing.charts import nice_step
from billing.exports import safe_cell
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
    return list(csv.DictReader(StringIO(content.decode())))


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
        assert page.context["month"].amount_ppt == usage
        assert sum(day["amount_ppt"] for day in page.context["days"]) == usage
        assert sum(sum(day["amounts"]) for day in page.context["days"]) == usage
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
    assert answer.text.count('aria-current="true"') == 2
    assert "HX-Request" in answer["Vary"]
    whole = browser.get("/usage/?period=7&group=key")
    assert "<html" in whole.text
    assert answer.text.strip() in whole.text


@pytest.mark.django_db
def test_today_is_shown_by_the_hour(browser: Client, usage: int) -> None:
    page = browser.get("/usage/?period=1")
    assert page.context["report"].query.interval == "hour"
    assert len(page.context["days"]) == 24


@pytest.mark.django_db
def test_a_row_narrows_the_report_and_the_filter_can_be_taken_away(browser: Client, usage: int) -> None:
    page = browser.get("/usage/?model=Qwen3.8-27B&group=key")
    assert page.context["report"].total.requests == 13
    assert 'href="?group=key"' in page.text
    assert 'href="?model=Qwen3.8-27B&amp;group=key&amp;key=1"' in page.text


@pytest.mark.parametrize(
    "query",
    ["period=9", "group=x", "key=abc", "key=99999999999999999999", "start=2026-01-01", "start=x&end=y", "member=-1"],
)
@pytest.mark.django_db
def test_nonsense_in_the_address_becomes_the_default(browser: Client, query: str) -> None:
    page = browser.get(f"/usage/?{query}")
    assert page.status_code == HTTPStatus.OK
    assert len(page.context["days"]) == 30


@pytest.mark.django_db
def test_an_address_may_name_its_own_days(browser: Client, usage: int) -> None:
    page = browser.get("/usage/?start=2026-10-01&end=2026-10-04")
    assert len(page.context["days"]) == 4
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
    assert len(page.context["days"][0]["amounts"]) == 8
    assert sum(page.context["days"][0]["amounts"]) == 12 * 141_120_000


@pytest.mark.django_db
def test_the_chart_carries_its_numbers_and_no_inline_style(browser: Client, usage: int) -> None:
    page = browser.get("/usage/").text
    svg = page[page.index('<svg class="chart"') : page.index("</svg>", page.index('<svg class="chart"'))]
    assert "style=" not in svg
    titles = re.findall(r"<rect class=\"chart-segment series-\d\"[^>]*><title>([^<]+: [0-9.]+)</title>", svg)
    assert sum(picopoints(title.rpartition(": ")[2]) for title in titles) == usage


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


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
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
        older = page.context["older"]
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
