"""/staff/: all teams' sums to the last digit, what waits, and nobody else's business."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Sum
from django.test import Client
from django.utils import timezone

from accounts.keys import issue_key
from accounts.models import Team, User
from billing.day_sums import sum_days
from billing.models import Charge
from billing.rates import load_rates
from billing.staff import AllTeams
from tests.billing.factories import make_record, rate_all

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff_browser(browser: Client, person: User) -> Client:
    person.is_staff = True
    person.save()
    return browser


def test_to_others_the_page_does_not_exist(browser: Client, client: Client) -> None:
    assert browser.get("/staff/").status_code == 404
    assert client.get("/staff/")["Location"] == "/accounts/login/?next=/staff/"


@pytest.mark.parametrize("are_summed", [False, True])
def test_all_teams_keys_and_models_add_up_to_the_charges(staff_browser: Client, team: Team, are_summed: bool) -> None:
    load_rates()
    other = Team.objects.create(name="Elsewhere", time_zone="America/New_York")
    keys = [issue_key(team=each, created_by=None, name="ci").key for each in (team, other)]
    now = timezone.now()
    for number in range(60):
        make_record(
            team_id=keys[number % 2].team_id,
            key_id=keys[number % 2].pk if number % 3 else 0,
            model="house-model" if number % 10 == 0 else "Qwen3.8-27B",
            prompt_tokens=1_000 + number,
            started_at=now - timedelta(hours=11 * number),
        )
    make_record(team_id=team.pk, model="own-server", source="dedicated", started_at=now)
    rate_all()
    if are_summed:
        assert sum_days(now=now) > 0
    found: AllTeams = staff_browser.get("/staff/?period=90").context["all"]
    charged = Charge.objects.aggregate(total=Sum("amount_ppt"))["total"]
    assert found.total.amount_ppt == charged
    assert sum(line.sums.amount_ppt for line in found.teams) == charged
    assert {line.name: line.sums.requests for line in found.teams} == {"Mei": 31, "Elsewhere": 30}
    with_key = Charge.objects.exclude(record__key_id=0).aggregate(total=Sum("amount_ppt"))["total"]
    assert sum(line.sums.amount_ppt for line in found.keys) == with_key
    assert [line.sums.amount_ppt for line in found.keys] == sorted(
        (line.sums.amount_ppt for line in found.keys), reverse=True
    )
    # A team's own server needs no rate.
    assert [(line.model, line.sums.requests) for line in found.unpriced] == [("house-model", 6)]


def test_what_waits_is_said(staff_browser: Client, team: Team) -> None:
    oldest = datetime.now(UTC) - timedelta(hours=3)
    make_record(team_id=team.pk, started_at=oldest)
    make_record(team_id=team.pk, started_at=timezone.now())
    page = staff_browser.get("/staff/")
    assert (page.context["all"].backlog.waiting, page.context["all"].backlog.oldest) == (2, oldest)
    assert 'hx-get="/staff/upstreams/"' in page.text
