"""Screen, CSV, JSON and the API's query say the same of any requests, digit for digit, and that is what was charged.

In zones whose days begin at odd quarters and change their clocks by an hour or half of one, over both changes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from accounts.models import ApiKey, Team, User
from accounts.teams import SESSION_KEY, personal_team
from billing.day_sums import sum_days
from billing.exports import csv_parts, json_parts
from billing.models import Charge, Rollup, UsageRecord
from billing.pricing import PPT_PER_POINT
from billing.rates import load_rates
from billing.reports import GroupBy, UsageQuery
from gateway.usage_parameters import read_usage_query
from tests.billing.factories import make_rate, make_record, rate_all

# Each zone's changes of 2026 (Kolkata and Kathmandu have none: an ordinary day of theirs).
CHANGES = {
    "Asia/Kolkata": [date(2026, 3, 29), date(2026, 10, 25)],
    "Asia/Kathmandu": [date(2026, 3, 29), date(2026, 10, 25)],
    "America/St_Johns": [date(2026, 3, 8), date(2026, 11, 1)],
    "Australia/Lord_Howe": [date(2026, 4, 5), date(2026, 10, 4)],
    "Europe/Berlin": [date(2026, 3, 29), date(2026, 10, 25)],
}
MODELS = ["DeepSeek-V4-Flash", "Qwen3.8-27B", "MinerU2.5-Pro", "house-model"]
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
# Each example goes through every zone and change; making a failing one smaller would take minutes.
QUICK = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)

requests = st.fixed_dictionaries(
    {
        # Of a midnight near the change: most of them within the hour beside it, where clocks make the difference.
        "day": st.integers(-1, 3),
        "seconds": st.integers(-3_600, 3_600) | st.integers(-43_200, 43_200),
        "model": st.sampled_from(MODELS),
        "key_id": st.integers(0, 2),
        "member_id": st.integers(0, 2),
        "endpoint": st.sampled_from(["chat", "messages"]),
        "source": st.sampled_from(["api", "playground", "dedicated"]),
        "status": st.sampled_from([200, 200, 200, 502]),
        "prompt_tokens": st.integers(0, 10**6),
        "cached_tokens": st.integers(0, 10**6),
        "completion_tokens": st.integers(0, 10**5),
        "pages": st.integers(0, 20),
    }
)
FILTERS: dict[GroupBy, st.SearchStrategy[Any]] = {
    GroupBy.MODEL: st.sampled_from(MODELS),
    GroupBy.KEY: st.integers(0, 2),
    GroupBy.MEMBER: st.integers(0, 2),
    GroupBy.ENDPOINT: st.sampled_from(["chat", "messages"]),
    GroupBy.SOURCE: st.sampled_from(["api", "playground", "dedicated"]),
}


@dataclass(frozen=True)
class Asked:
    zone: str
    first: date
    last: date
    interval: str
    group: GroupBy
    filters: dict[GroupBy, Any]

    @property
    def parameters(self) -> dict[str, str]:
        named = {by.value: str(value) for by, value in self.filters.items()}
        period = {"start": self.first.isoformat(), "end": self.last.isoformat()}
        return {**period, "interval": self.interval, "tz": self.zone, **named}

    def of_charges(self, team: Team) -> dict[str, int]:
        """Picopoints by bucket, of the records' own times: nothing here is what reports are made of."""
        zone, after = ZoneInfo(self.zone), self.last + timedelta(days=1)
        start = datetime(self.first.year, self.first.month, self.first.day, tzinfo=zone)
        end = datetime(after.year, after.month, after.day, tzinfo=zone)
        named = {f"record__{by.column}": value for by, value in self.filters.items()}
        charges = Charge.objects.filter(
            record__team_id=team.pk, record__started_at__gte=start, record__started_at__lt=end, **named
        )
        found: dict[str, int] = {}
        for at, amount_ppt in charges.values_list("record__started_at", "amount_ppt"):
            bucket = self.bucket_of(at)
            found[bucket] = found.get(bucket, 0) + amount_ppt
        return {bucket: amount_ppt for bucket, amount_ppt in found.items() if amount_ppt}

    def bucket_of(self, at: datetime) -> str:
        """By the clock on the wall: the hour with the offset of that moment, the day or month from its midnight."""
        local = at.astimezone(ZoneInfo(self.zone))
        if self.interval == "hour":
            offset = local.utcoffset()
            begins = (local.replace(tzinfo=None, minute=0, second=0, microsecond=0) - (offset or timedelta())).replace(
                tzinfo=UTC
            )
            return begins.astimezone(local.tzinfo).isoformat()
        day = local.date().replace(day=1) if self.interval == "month" else local.date()
        return datetime(day.year, day.month, day.day, tzinfo=local.tzinfo).isoformat()


@st.composite
def asked(draw: st.DrawFn, zone: str, change: date) -> Asked:
    first = change - timedelta(days=draw(st.integers(0, 2)))
    last = change + timedelta(days=draw(st.integers(0, 2)))
    chosen = draw(st.lists(st.sampled_from(GroupBy), max_size=2, unique=True))
    filters = {by: draw(FILTERS[by]) for by in chosen}
    interval = draw(st.sampled_from(["hour", "day", "month"]))
    return Asked(zone, first, last, interval, draw(st.sampled_from(GroupBy)), filters)


def ppt(points: str) -> int:
    return int(Decimal(points) * PPT_PER_POINT)


def cells_of_csv(query: UsageQuery) -> tuple[dict[tuple[str, str], tuple[str, ...]], dict[str, str]]:
    *rows, total = csv.DictReader(StringIO("".join(csv_parts(query))))
    by = query.group_by[0].column
    names = ("requests", "errors", "input_tokens", "cache_read_tokens", "output_tokens", "pages", "points")
    used = [row for row in rows if row["requests"] != "0"]
    return {(row["start"], row[by]): tuple(row[name] for name in names) for row in used}, total


def cells_of_json(query: UsageQuery) -> tuple[dict[tuple[str, str], tuple[str, ...]], dict[str, Any]]:
    document = json.loads("".join(json_parts(query, unrated=0)))
    cells: dict[tuple[str, str], tuple[str, ...]] = {
        (bucket["start"], str(one[query.group_by[0].value])): (
            str(one["requests"]), str(one["errors"]), str(one["prompt_tokens"] - one["cached_tokens"]),
            str(one["cached_tokens"]), str(one["completion_tokens"]), str(one["pages"]), one["points"],
        )
        for bucket in document["buckets"]
        for one in bucket["results"]
    }  # fmt: skip
    return cells, document["total"]


def check(browser: Client, team: Team, question: Asked) -> None:
    page = browser.get("/usage/?" + urlencode(question.parameters | {"group": question.group.value}))
    shown = page.context["page"]
    query = shown.report.query
    # The API reads its own parameters into the same question.
    api = read_usage_query(
        question.parameters | {"group_by": question.group.value}, team_id=team.pk, zone=ZoneInfo("UTC"), now=NOW
    )
    assert api == query
    in_csv, csv_total = cells_of_csv(query)
    in_json, json_total = cells_of_json(api)
    assert in_csv == in_json
    by_charges = question.of_charges(team)
    due = sum(by_charges.values())
    screen = [
        shown.report.total.amount_ppt,
        sum(row.sums.amount_ppt for row in shown.groups.rows),
        sum(series.sums.amount_ppt for series in shown.chart.series),
        sum(sums.amount_ppt for sums in shown.report.by_bucket.values()),
    ]
    files = [ppt(csv_total["points"]), ppt(json_total["points"]), sum(ppt(cell[-1]) for cell in in_csv.values())]
    assert {*screen, *files} == {due}
    assert shown.report.total.points == csv_total["points"] == json_total["points"]
    assert str(shown.report.total.requests) == csv_total["requests"] == str(json_total["requests"])
    # Bucket by bucket: the files, the screen, and the charges by their own times.
    by_bucket: dict[str, int] = {}
    for (start, _), cell in in_csv.items():
        by_bucket[start] = by_bucket.get(start, 0) + ppt(cell[-1])
    on_screen = {
        bucket.astimezone(query.zone).isoformat(): sums.amount_ppt for bucket, sums in shown.report.by_bucket.items()
    }
    assert by_bucket == on_screen
    assert {start: amount for start, amount in by_bucket.items() if amount} == by_charges


def midnight_of(change: date, days: int, zone: str) -> datetime:
    day = change + timedelta(days=days)
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def places() -> Iterator[tuple[str, date]]:
    for zone, changes in CHANGES.items():
        for change in changes:
            yield zone, change


class ReportProperties(TestCase):
    def setUp(self) -> None:
        for model in MODELS[:3]:
            for meter, rate in (("input", "0.14"), ("cache_read", "0.0028"), ("output", "0.28"), ("page", "0.000001")):
                make_rate(model=model, meter=meter, rate=rate, effective_from=datetime(2026, 1, 1, tzinfo=UTC))
        self.person = User.objects.create_user("mei@example.com", name="Mei")
        self.team = personal_team(user=self.person)
        self.browser = Client()
        self.browser.force_login(self.person)

    @QUICK
    @given(st.data())
    def test_screen_csv_json_api_and_charges_agree(self, data: st.DataObject) -> None:
        for zone, change in places():
            UsageRecord.objects.filter(team_id=self.team.pk).delete()
            self.team = Team.objects.create(name="A", time_zone=data.draw(st.sampled_from(list(CHANGES))))
            self.team.memberships.create(user=self.person)
            session = self.browser.session
            session[SESSION_KEY] = self.team.pk
            session.save()
            for drawn in data.draw(st.lists(requests, min_size=4, max_size=8)):
                fields: dict[str, Any] = dict(drawn)
                at = midnight_of(change, fields.pop("day"), zone) + timedelta(seconds=fields.pop("seconds"))
                make_record(team_id=self.team.pk, started_at=at, **fields)
            rate_all()
            if data.draw(st.booleans()):
                sum_days(now=midnight_of(change, data.draw(st.integers(0, 4)), zone))
            check(self.browser, self.team, data.draw(asked(zone, change)))

    def test_no_moment_beside_a_midnight_of_a_change_is_missed(self) -> None:
        """What chance may not hit: half an hour before and after each midnight, and the last microsecond before it."""
        beside = [timedelta(minutes=-30), timedelta(microseconds=-1), timedelta(), timedelta(minutes=30)]
        for zone, change in places():
            UsageRecord.objects.filter(team_id=self.team.pk).delete()
            Rollup.objects.filter(team_id=self.team.pk).delete()
            for days in range(-1, 4):
                for after in beside:
                    at = midnight_of(change, days, zone) + after
                    make_record(team_id=self.team.pk, started_at=at, prompt_tokens=1_000 + days)
            rate_all()
            for interval in ("hour", "day", "month"):
                first, last = change - timedelta(days=1), change + timedelta(days=2)
                check(self.browser, self.team, Asked(zone, first, last, interval, GroupBy.MODEL, {}))


# -- names that were made to hurt ---------------------------------------------------------------

HOSTILE = [
    "=cmd|' /C calc'!A0",
    '=cmd|\' /C calc\'!A0", "and, more"',
    "+1\r\n=2+5",
    "@SUM(A1:A9)\n-3",
    "\t=1+1",
    "  =1+1",
    "＝1+1",
    "-2+3 📈🧨 \u202egnp.exe",
    "a,b;c\"d'e\r\nf",
    "<script>alert(1)</script>",
]


@pytest.mark.django_db
def test_hostile_key_names_come_through_whole_and_harmless(browser: Client, team: Team) -> None:
    load_rates()
    for number, name in enumerate(HOSTILE, 1):
        key = ApiKey.objects.create(
            pk=number, team=team, name=name, digest=f"{number:064d}", prefix="rc-1234", last_four="abcd"
        )
        make_record(team_id=team.pk, key_id=key.pk, started_at=NOW)
    rate_all()
    day = NOW.date()
    query = UsageQuery.for_days(team.pk, day, day, ZoneInfo("UTC"), group_by=(GroupBy.KEY,))
    rows = list(csv.reader(StringIO("".join(csv_parts(query)), newline="")))
    assert {len(row) for row in rows} == {len(rows[0])}
    cells = {row[2]: row[3] for row in rows[1:-1]}
    document = json.loads("".join(json_parts(query, unrated=0)))
    named = {str(one["key"]): one["name"] for one in document["buckets"][0]["results"]}
    for number, name in enumerate(HOSTILE, 1):
        whole = f"{name} (rc-1234…abcd)"
        assert named[str(number)] == whole
        assert cells[str(number)] in {whole, f"'{whole}"}
    dangerous = ("=", "+", "-", "@", "＝", "\t", "\r", "\n")
    for row in rows:
        assert not any(cell.lstrip(" \t\r\n").startswith(dangerous) for cell in row)
    page = browser.get(f"/usage/?group=key&start={day}&end={day}").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
