"""Quota counters held against the ledger: what is off is named, what is only ahead or being put right is not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounts.keys import KeyTerms, issue_key
from accounts.models import ApiKey, Team
from billing import counters
from billing.counters import Counted, NotReadable, Owner, differences
from billing.quota import ROLLING, period_of
from billing.rates import load_rates
from tests.billing.factories import make_record, rate_all

pytestmark = pytest.mark.django_db
EXAMPLE_PPT = 141_120_000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, settings: LazySettings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(counters, "SHIPPED_SECONDS", 0)
    monkeypatch.setattr(counters, "RETRY_SECONDS", 0)
    monkeypatch.setattr(counters, "PATIENCE_SECONDS", 0)
    load_rates()


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="A", time_zone="Asia/Kathmandu", points_limit_ppt=10**12, points_period="day")


@pytest.fixture
def key(team: Team) -> ApiKey:
    return issue_key(team=team, created_by=None, name="k", terms=KeyTerms(points_limit_ppt=10**12)).key


def provide(monkeypatch: pytest.MonkeyPatch, *states: dict[Owner, Counted] | Exception | None) -> None:
    """What is read, look after look; the last state stays."""
    left = list(states)

    def read() -> dict[Owner, Counted] | None:
        state = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(state, Exception):
            raise state
        return state

    monkeypatch.setattr(counters, "_read", read)


def use(team: Team, *, key_id: int = 3, times: int = 1, at: datetime | None = None) -> None:
    for _ in range(times):
        make_record(team_id=team.pk, key_id=key_id, started_at=at or timezone.now())


def day_end(team: Team) -> datetime:
    return period_of(team, timezone.now()).end


def test_a_counter_is_its_periods_charges_and_what_waits(monkeypatch: pytest.MonkeyPatch, team: Team) -> None:
    use(team, times=2)
    rate_all()
    use(team)
    use(team, at=day_end(team) - timedelta(days=1, microseconds=1))
    provide(monkeypatch, {Owner(team.pk): Counted(day_end(team), 3 * EXAMPLE_PPT)})
    assert differences() == []


@pytest.mark.parametrize(("counted", "said"), [(0, "0"), (2 * EXAMPLE_PPT, "0.00028224")])
def test_a_counter_that_is_off_is_named(monkeypatch: pytest.MonkeyPatch, team: Team, counted: int, said: str) -> None:
    use(team)
    provide(monkeypatch, {Owner(team.pk): Counted(day_end(team), counted)})
    text = f"quota counter of team {team.pk}: {said} points counted, 0.00014112 in the ledger"
    assert differences() == [text]
    with pytest.raises(CommandError, match="1 differences"):
        call_command("reconcile", stdout=StringIO())
    call_command("reconcile", "--to", f"{timezone.now():%Y-%m-%d}", stdout=StringIO())


def test_calls_that_end_meanwhile_are_no_difference(monkeypatch: pytest.MonkeyPatch, team: Team) -> None:
    use(team, times=2)
    first, then = (Counted(day_end(team), times * EXAMPLE_PPT) for times in (1, 3))
    provide(monkeypatch, {Owner(team.pk): first}, {Owner(team.pk): then})
    assert differences() == []


def test_what_is_put_right_soon_is_no_difference(monkeypatch: pytest.MonkeyPatch, team: Team) -> None:
    use(team)
    wrong, right = ({Owner(team.pk): Counted(day_end(team), times * EXAMPLE_PPT)} for times in (2, 1))
    provide(monkeypatch, wrong, wrong, wrong, right)
    monkeypatch.setattr(counters, "PATIENCE_SECONDS", 60)
    assert differences() == []


def test_a_key_has_its_own_counter(monkeypatch: pytest.MonkeyPatch, team: Team, key: ApiKey) -> None:
    use(team, key_id=key.pk)
    use(team, key_id=0)
    end = day_end(team)
    provide(monkeypatch, {Owner(team.pk): Counted(end, 2 * EXAMPLE_PPT), Owner(key_id=key.pk): Counted(end, 5)})
    text = f"quota counter of key {key.pk}: 0.000000000005 points counted, 0.00014112 in the ledger"
    assert differences() == [text]


def test_a_rolling_window_ends_a_day_after_it_began(monkeypatch: pytest.MonkeyPatch, team: Team) -> None:
    Team.objects.filter(pk=team.pk).update(points_period="rolling")
    began = timezone.now() - timedelta(hours=3)
    use(team, at=began - timedelta(milliseconds=2))
    use(team, at=began)
    use(team)
    provide(monkeypatch, {Owner(team.pk): Counted(began + ROLLING, 2 * EXAMPLE_PPT)})
    assert differences() == []


def ignored(team: Team, key: ApiKey) -> Iterable[tuple[Owner, Counted]]:
    end = day_end(team)
    # Over; of a zone or period that the team had before; of somebody who is gone; of a key without a limit now.
    yield Owner(team.pk), Counted(end - timedelta(days=1), 1)
    yield Owner(team.pk), Counted(end + timedelta(hours=1), 1)
    yield Owner(10**6), Counted(end, 1)
    yield Owner(key_id=10**6), Counted(end, 1)
    ApiKey.objects.update(points_limit_ppt=0)
    yield Owner(key_id=key.pk), Counted(end, 1)
    Team.objects.update(points_limit_ppt=0)
    yield Owner(team.pk), Counted(end, 1)


def test_a_counter_that_no_call_goes_by_says_nothing(monkeypatch: pytest.MonkeyPatch, team: Team, key: ApiKey) -> None:
    use(team, key_id=key.pk)
    for owner, counted in ignored(team, key):
        provide(monkeypatch, {owner: counted})
        assert differences() == [], owner


def test_counters_that_cannot_be_read_are_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    provide(monkeypatch, NotReadable("ConnectionError"))
    assert differences() == ["the quota counters could not be read: ConnectionError"]


def test_without_redis_it_is_said_who_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    output: Any = StringIO()
    provide(monkeypatch, None)
    call_command("reconcile", stdout=output)
    assert "The quota counters are the web process's own" in output.getvalue()
