"""/team/settings/: a team tightens what the site grants; only staff widens it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.conf import LazySettings
from django.utils import timezone

from accounts import key_epoch
from accounts.models import AuditEntry, Team, User
from accounts.points import points_of, ppt_of
from tests.accounts.conftest import MakePerson, MakeTeam, SignIn

FORM: dict[str, Any] = {"name": "Research", "time_zone": "Europe/Berlin", "points_limit": "", "rpm_limit": ""}


@pytest.fixture
def owner(make_person: MakePerson) -> User:
    return make_person()


@pytest.fixture
def team(owner: User, make_team: MakeTeam, settings: LazySettings) -> Team:
    settings.TEAM_POINTS_LIMIT, settings.RATE_LIMIT_TEAM_RPM = Decimal(10), 60
    return make_team(owner=owner)


def save(team: Team, person: User, sign_in: SignIn, **fields: str) -> int:
    status = sign_in(person, team=team).post("/team/settings/", FORM | fields).status_code
    team.refresh_from_db()
    return status


def test_settings_are_saved_recorded_and_told(team: Team, owner: User, sign_in: SignIn) -> None:
    before = key_epoch.local()
    assert save(team, owner, sign_in, name="Lab", points_limit="2.5", rpm_limit="30", default_key_days="90") == 302
    assert (team.name, team.time_zone, team.default_key_days) == ("Lab", "Europe/Berlin", 90)
    assert (team.points_limit_ppt, team.rpm_limit) == (2_500_000_000_000, 30)
    assert key_epoch.local() != before
    entry = AuditEntry.objects.get(action="team.changed")
    assert entry.details == {
        "name": ["Research", "Lab"],
        "time_zone": ["Asia/Shanghai", "Europe/Berlin"],
        "default_key_days": [None, 90],
        "points_limit_ppt": [None, 2_500_000_000_000],
        "rpm_limit": [None, 30],
    }


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"points_limit": "10"}, 302),
        ({"points_limit": "10.000000000001"}, 422),
        ({"points_limit": "0"}, 422),
        ({"rpm_limit": "61"}, 422),
        ({"rpm_limit": "0"}, 422),
        ({"time_zone": "Mars/Olympus"}, 422),
        ({"name": ""}, 422),
    ],
)
def test_what_an_owner_may_set(fields: dict[str, str], status: int, team: Team, owner: User, sign_in: SignIn) -> None:
    assert save(team, owner, sign_in, **fields) == status


def test_what_staff_granted_is_kept_and_may_be_lowered(team: Team, owner: User, sign_in: SignIn) -> None:
    Team.objects.filter(pk=team.pk).update(points_limit_ppt=ppt_of(Decimal(50)), rpm_limit=0)
    assert save(team, owner, sign_in, points_limit="50", rpm_limit="0") == 302
    assert save(team, owner, sign_in, points_limit="40", rpm_limit="500") == 302
    assert save(team, owner, sign_in, points_limit="50", rpm_limit="500") == 422


def test_the_period_is_the_staffs(team: Team, owner: User, make_person: MakePerson, sign_in: SignIn) -> None:
    save(team, owner, sign_in, points_period="month")
    assert team.points_period == ""
    User.objects.filter(pk=owner.pk).update(is_staff=True)
    save(team, owner, sign_in, points_period="month", points_limit="1000", rpm_limit="0")
    assert (team.points_period, team.points_limit_ppt, team.rpm_limit) == ("month", 10**15, 0)


def test_the_zone_moves_once_a_day_where_points_are_limited(
    team: Team, owner: User, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each midnight the points begin anew; there is one somewhere every hour."""
    assert save(team, owner, sign_in) == 302
    assert save(team, owner, sign_in, name="Lab") == 302
    assert save(team, owner, sign_in, time_zone="Pacific/Kiritimati") == 422
    tomorrow = timezone.now() + timedelta(hours=25)
    with monkeypatch.context() as clock:
        clock.setattr(timezone, "now", lambda: tomorrow)
        assert save(team, owner, sign_in, time_zone="Pacific/Kiritimati") == 302
    Team.objects.filter(pk=team.pk).update(points_limit_ppt=0)
    assert save(team, owner, sign_in, time_zone="Asia/Tokyo", points_limit="0") == 302
    Team.objects.filter(pk=team.pk).update(points_limit_ppt=None)
    User.objects.filter(pk=owner.pk).update(is_staff=True)
    assert save(team, owner, sign_in, time_zone="Europe/Berlin") == 302


@pytest.mark.parametrize(
    ("points", "ppt"), [("0", 0), ("10", 10**13), ("0.000000000001", 1), ("9000000", 9 * 10**18), ("2.50", 25 * 10**11)]
)
def test_points_are_kept_without_rounding(points: str, ppt: int) -> None:
    assert ppt_of(Decimal(points)) == ppt
    assert points_of(ppt) == Decimal(points)
    assert Decimal(f"{points_of(ppt):f}") == Decimal(points)
