"""`/api/me`, `/api/profile/…` and `/api/usage` over real sockets, held against the pages and the ledger."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import httpx
import pytest

from tests.installation import Installation, WebProcess, installation

# Five rated requests of today, one of 40 days ago, one still waiting; amounts typed from the published card.
SET_UP = """
import json, uuid, django
from datetime import timedelta
django.setup()
from django.utils import timezone
from accounts.keys import KeyTerms, issue_key
from accounts.models import ApiKey, Team, User
from billing.models import UsageRecord
from billing.rating import rate_batch
from tests.billing.factories import make_record
team, owner, now = Team.objects.first(), User.objects.first(), timezone.now()
key = ApiKey.objects.first()
who = {"team_id": team.pk, "key_id": key.pk, "member_id": owner.pk}
for number in range(4):
    make_record(id=uuid.uuid4(), started_at=now - timedelta(seconds=number), **who)
make_record(id=uuid.uuid4(), started_at=now, status=502, outcome="error", **who)
make_record(id=uuid.uuid4(), started_at=now - timedelta(days=40), model="Qwen3.8-27B", **who)
make_record(id=uuid.uuid4(), started_at=now, **who | {"team_id": 999})
while rate_batch():
    pass
make_record(id=uuid.uuid4(), started_at=now, **who)
terms = KeyTerms(models=["Qwen3.8-27B"], endpoints=["chat"], rpm_limit=7, concurrency_limit=2, portable=True,
                 points_limit_ppt=1_500_000_000_000)
narrow = issue_key(team=team, created_by=owner, name="narrow", terms=terms)
elsewhere = issue_key(team=team, created_by=owner, name="elsewhere", terms=KeyTerms(networks=["10.0.0.0/8"]))
other = issue_key(team=Team.objects.create(name="Other", time_zone="UTC"), created_by=None, name="other")
print(json.dumps({"narrow": narrow.secret, "narrow_id": narrow.key.pk, "other": other.secret, "key_id": key.pk,
                  "elsewhere": elsewhere.secret, "team": team.pk, "member": owner.pk}))
"""
# 600 × 140,000 + 400 × 2,800 + 200 × 280,000 picopoints a request.
FOUR = Decimal("0.00014112") * 4
OLD = Decimal("0.00003528")


@dataclass(frozen=True)
class Site:
    installed: Installation
    web: WebProcess
    made: dict[str, Any]

    def get(self, path: str, *, secret: str | None = None, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {secret or self.installed.secret}"}
        return httpx.get(f"{self.web.url}{path}", headers=headers, timeout=60, **options)

    def post(self, path: str, *, secret: str, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.web.url}{path}", headers={"authorization": f"Bearer {secret}"}, timeout=60, **options)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with installation(tmp_path_factory.mktemp("account"), RATE_LIMIT_KEY_RPM="0", TEAM_POINTS_LIMIT="10") as made:
        # No worker runs: what waits stays waiting.
        yield Site(made, made.start_web(), json.loads(made.run_python(SET_UP)))


def test_me_says_who_the_credential_is(site: Site) -> None:
    document = site.get("/api/me", secret=site.made["narrow"]).json()
    assert document["person"]["email"] == site.installed.email
    assert document["role"] == "owner"
    assert document["team"]["time_zone"] == "Asia/Shanghai"
    key = document["key"]
    assert (key["id"], key["name"]) == (site.made["narrow_id"], "narrow")
    assert (key["prefix"], key["last_four"]) == (site.made["narrow"][:7], site.made["narrow"][-4:])
    assert key["scopes"] == {"models": ["Qwen3.8-27B"], "endpoints": ["chat"], "networks": []}
    assert key["limits"] == {
        "rpm": 7, "concurrency": 2, "points": "1.5", "team_rpm": None, "team_points": "10", "period": "day",
    }  # fmt: skip
    assert key["portable"] is True
    assert site.made["narrow"] not in json.dumps(document)


def test_a_key_that_nobody_made_has_no_person(site: Site) -> None:
    document = site.get("/api/me", secret=site.made["other"]).json()
    assert (document["person"], document["role"], document["team"]["name"]) == (None, None, "Other")


def test_model_usage_adds_up_to_the_last_digit(site: Site) -> None:
    document = site.get("/api/profile/model-usage").json()
    assert list(document) == [
        "status", "unit", "rpm_limit", "daily_points_limit", "daily_points_used", "daily_points_remaining",
        "daily_reset_timezone", "daily_reset_at", "today", "last_30_days", "all_time", "by_model", "recent", "unrated",
    ]  # fmt: skip
    assert (document["unit"], document["rpm_limit"], document["unrated"]) == ("pts", None, 1)
    assert document["daily_points_limit"] == "10"
    assert Decimal(document["daily_points_used"]) + Decimal(document["daily_points_remaining"]) == 10
    assert document["daily_reset_timezone"] == "Asia/Shanghai"
    assert document["daily_reset_at"].endswith("T00:00:00+08:00")
    month = document["last_30_days"]
    assert {name: value for name, value in month.items() if name != "last_request_at"} == {
        "requests": 5, "errors": 1, "prompt_tokens": 4_000, "cached_tokens": 1_600, "completion_tokens": 800,
        "total_tokens": 4_800, "pages": 0, "characters": 0, "points": str(FOUR),
    }  # fmt: skip
    assert Decimal(document["all_time"]["points"]) == FOUR + OLD
    assert [(item["model"], Decimal(item["points"])) for item in document["by_model"]] == [
        ("DeepSeek-V4-Flash", FOUR), ("Qwen3.8-27B", OLD),
    ]  # fmt: skip
    assert document["by_model"][0]["last_request_at"] == month["last_request_at"]
    assert document["recent"] == []


def test_recent_requests_are_listed_when_asked_for(site: Site) -> None:
    recent = site.get("/api/profile/model-usage?include_recent=1").json()["recent"]
    assert len(recent) == 6
    assert sum(Decimal(item["points"]) for item in recent) == FOUR + OLD
    assert {item["key_id"] for item in recent} == {site.made["key_id"]}
    assert all(item["request_id"].count("-") == 4 for item in recent)


def test_usage_has_a_bucket_for_every_day_and_totals_that_agree(site: Site) -> None:
    document = site.get("/api/usage").json()
    assert len(document["buckets"]) == 30
    assert (document["interval"], document["time_zone"], document["group_by"]) == ("day", "Asia/Shanghai", ["model"])
    results = [result for bucket in document["buckets"] for result in bucket["results"]]
    assert sum(Decimal(result["points"]) for result in results) == Decimal(document["total"]["points"]) == FOUR
    assert {result["model"] for result in results} == {"DeepSeek-V4-Flash"}


def test_csv_is_the_same_report(site: Site) -> None:
    answer = site.get("/api/usage?format=csv&group_by=model,key&tz=UTC&interval=month&start=2000-01-01&end=2005-01-01")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    start = (datetime.now(UTC) - timedelta(days=60)).date()
    query = f"group_by=model,key&tz=UTC&start={start}"
    rows = list(csv.DictReader(StringIO(site.get(f"/api/usage?format=csv&{query}").text)))
    document = site.get(f"/api/usage?{query}").json()
    assert rows[-1]["start"] == "total"
    assert rows[-1]["points"] == document["total"]["points"]
    used = [row for row in rows[:-1] if row["model"]]
    results = [result for bucket in document["buckets"] for result in bucket["results"]]
    assert [(row["model"], row["key_id"], row["points"]) for row in used] == [
        (result["model"], str(result["key"]), result["points"]) for result in results
    ]


def test_the_same_csv_as_the_pages_export(site: Site) -> None:
    with httpx.Client(base_url=site.web.url, timeout=60) as browser:
        page = browser.get("/accounts/login/")
        form = {"login": site.installed.email, "password": site.installed.password}
        browser.post("/accounts/login/", data=form | {"csrfmiddlewaretoken": browser.cookies["tf_csrf"]})
        assert page.status_code == 200
        day = datetime.now(UTC).date()
        period = f"start={day - timedelta(days=50)}&end={day - timedelta(days=3)}"
        exported = browser.get(f"/usage/export.csv?{period}")
        assert exported.headers["content-type"].startswith("text/csv")
        # The page's file is marked for spreadsheets.
        assert exported.text.removeprefix("\ufeff") == site.get(f"/api/usage?{period}&format=csv").text
        document = site.get(f"/api/usage?{period}").json()
        assert browser.get(f"/usage/export.json?{period}").json() == document
        assert document["filters"] == {}
        # The session is a credential here too, for reading.
        assert browser.get("/api/me").json()["key"] is None


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("interval=week", "interval"),
        ("start=yesterday", "start"),
        ("end=2026-13-01", "end"),
        ("start=2026-02-01&end=2026-01-01", "start"),
        ("start=0001-01-01&interval=hour", "start"),
        ("end=0001-01-01", "end"),
        ("tz=Mars/Olympus", "tz"),
        ("tz=../../etc/passwd", "tz"),
        ("group_by=model,model", "group_by"),
        ("group_by=price", "group_by"),
        ("format=xml", "format"),
        ("key=abc", "key"),
        ("colour=red", "colour"),
        ("model=%00", None),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(site: Site, query: str, param: str | None) -> None:
    answer = site.get(f"/api/usage?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_filters_narrow_the_report(site: Site) -> None:
    assert site.get("/api/usage?key=0").json()["total"]["requests"] == 0
    assert site.get(f"/api/usage?key={site.made['key_id']}").json()["total"]["requests"] == 5


def test_another_teams_usage_is_not_there(site: Site) -> None:
    assert site.get("/api/usage", secret=site.made["other"]).json()["total"]["requests"] == 0


def test_a_key_limited_to_a_network_is_refused_elsewhere(site: Site) -> None:
    assert site.get("/api/me", secret=site.made["elsewhere"]).status_code == 403


def test_a_key_rotates_itself(site: Site) -> None:
    old = json.loads(
        site.installed.run_python(
            "import json, django; django.setup()\nfrom accounts.keys import issue_key\n"
            "from accounts.models import Team\n"
            "print(json.dumps(issue_key(team=Team.objects.first(), created_by=None, name='turning').secret))"
        )
    )
    for wrong in (-1, 1.5, "1", True, 10**9):
        answer = site.post("/api/profile/api-token", secret=old, json={"grace_seconds": wrong})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "grace_seconds")
    answer = site.post("/api/profile/api-token", secret=old)
    new = answer.json()["api_key"]
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.json()["name"], answer.json()["previous_until"]) == ("turning", None)
    assert site.get("/api/me", secret=old).status_code == 401
    assert site.get("/api/me", secret=new).json()["key"]["id"] == answer.json()["id"]
    graceful = site.post("/api/profile/api-token", secret=new, json={"grace_seconds": 60}).json()
    assert graceful["previous_until"]
    assert site.get("/api/me", secret=new).status_code == 200
    assert site.get("/api/me", secret=graceful["api_key"]).status_code == 200


def test_a_session_cannot_rotate_and_needs_the_token_for_posts(site: Site) -> None:
    with httpx.Client(base_url=site.web.url, timeout=60) as browser:
        browser.get("/accounts/login/")
        form = {"login": site.installed.email, "password": site.installed.password}
        browser.post("/accounts/login/", data=form | {"csrfmiddlewaretoken": browser.cookies["tf_csrf"]})
        assert "CSRF" in browser.post("/api/profile/api-token").json()["error"]["message"]
        headers = {"x-csrftoken": browser.cookies["tf_csrf"]}
        answer = browser.post("/api/profile/api-token", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "permission_denied")


@pytest.mark.parametrize("path", ["/api/me", "/api/usage", "/api/profile/model-usage", "/api/profile/api-token"])
def test_wrong_methods_and_missing_credentials_are_json(site: Site, path: str) -> None:
    allowed = "POST" if path.endswith("token") else "GET"
    wrong = site.web.url + path
    answer = httpx.request("DELETE", wrong)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert answer.headers["x-request-id"]
    assert httpx.request(allowed, wrong).json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("path", ["/api/", "/api/mee", "/api/me/", "/api/x/v1/models", "/api/v2/models"])
def test_unknown_paths_are_json(site: Site, path: str) -> None:
    answer = site.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
