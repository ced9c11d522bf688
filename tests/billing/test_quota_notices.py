"""Warnings of points: each level once a period, to those who can do something about it, and on every page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from accounts.models import Membership, Role, Team, User
from billing import quota_notices
from billing.models import QuotaNotice
from billing.quota_notices import QuotaStatus, warn_teams
from billing.rates import load_rates
from tests.billing.factories import make_record, rate_all

pytestmark = pytest.mark.django_db
EXAMPLE_PPT = 141_120_000
NOW = datetime(2026, 11, 1, 10, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def ten_requests_a_day(team: Team) -> Iterator[None]:
    load_rates()
    cache.clear()
    team.points_limit_ppt = 10 * EXAMPLE_PPT
    team.points_period = "day"
    team.save()
    yield
    cache.clear()


def use(team: Team, count: int, *, at: datetime = NOW) -> None:
    for _ in range(count):
        make_record(team_id=team.pk, started_at=at - timedelta(minutes=5))
    rate_all()


def test_owners_and_admins_are_told_once_at_each_level(team: Team) -> None:
    for name, role in [("an", Role.ADMIN), ("bo", Role.MEMBER), ("cy", Role.VIEWER)]:
        person = User.objects.create_user(f"{name}@example.com")
        Membership.objects.create(team=team, user=person, role=role)
    use(team, 7)
    assert warn_teams(now=NOW) == 0
    use(team, 1)
    assert warn_teams(now=NOW) == 1
    assert warn_teams(now=NOW) == 0
    assert {tuple(message.to) for message in mail.outbox} == {("mei@example.com",), ("an@example.com",)}
    assert mail.outbox[0].subject == "Mei has used 80 % of its points"
    assert "Mei has used 0.00112896 of its 0.0014112 points." in mail.outbox[0].body
    # Midnight in Kathmandu.
    assert "The next period begins on 2026-11-02 00:00 (Asia/Kathmandu)." in mail.outbox[0].body
    use(team, 2)
    assert warn_teams(now=NOW) == 1
    assert mail.outbox[-1].subject == "Mei has used all its points"
    assert warn_teams(now=NOW) == 0


def test_who_passes_both_levels_at_once_gets_one_mail(team: Team) -> None:
    use(team, 11)
    assert warn_teams(now=NOW) == 1
    assert warn_teams(now=NOW) == 0
    assert set(QuotaNotice.objects.values_list("level", flat=True)) == {80, 100}


def test_the_next_period_and_a_raised_limit_warn_anew(team: Team) -> None:
    use(team, 8)
    warn_teams(now=NOW)
    use(team, 8, at=NOW + timedelta(days=1))
    assert warn_teams(now=NOW + timedelta(days=1)) == 1
    Team.objects.filter(pk=team.pk).update(points_limit_ppt=9 * EXAMPLE_PPT)
    assert warn_teams(now=NOW + timedelta(days=1)) == 1


def test_a_team_without_a_limit_is_left_alone(team: Team) -> None:
    Team.objects.filter(pk=team.pk).update(points_limit_ppt=0)
    use(team, 20)
    assert warn_teams(now=NOW) == 0


def test_a_mail_that_fails_is_sent_the_next_time(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    use(team, 10)

    def fail(*_arguments: Any) -> None:
        raise ConnectionRefusedError

    with monkeypatch.context() as broken:
        broken.setattr(quota_notices, "_mail", fail)
        assert warn_teams(now=NOW) == 0
    assert warn_teams(now=NOW) == 1


@pytest.mark.parametrize(("used", "level"), [(0, 0), (79, 0), (80, 80), (99, 80), (100, 100), (130, 100)])
def test_levels_are_reached_exactly(team: Team, used: int, level: int) -> None:
    status = QuotaStatus.of(team, now=NOW)
    assert status is not None
    assert QuotaStatus(100, used, status.period, status.zone).level == level


def test_every_page_of_the_team_carries_the_banner(browser: Client, team: Team) -> None:
    assert "points left" not in browser.get("/usage/").content.decode()
    use(team, 9, at=timezone.now() + timedelta(minutes=5))
    cache.clear()
    page = browser.get("/usage/").content.decode()
    assert "Mei has 0.00014112 of 0.0014112 points left." in page
    use(team, 1, at=timezone.now() + timedelta(minutes=5))
    cache.clear()
    assert "Mei has used all its points." in browser.get("/keys/").content.decode()
