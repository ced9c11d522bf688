"""Days summed once more say what their quarter hours say, or step aside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from accounts.models import Team
from billing.buckets import Interval
from billing.day_sums import sum_days
from billing.models import DayRollup, Rollup, SummedDay
from billing.rates import load_rates
from billing.reconciliation import reconcile
from billing.reports import GroupBy, UsageQuery
from tests.billing.factories import make_rate, make_record, rate_all

# New York's clock goes back on 1 November 2026: a day of 25 hours.
START, END = datetime(2026, 10, 30, tzinfo=UTC), datetime(2026, 11, 4, tzinfo=UTC)
NOW = datetime(2026, 11, 5, 12, tzinfo=UTC)
ZONES = ["America/New_York", "Asia/Kathmandu", "Asia/Shanghai", "UTC"]


@pytest.fixture
def team(db: None) -> Team:
    load_rates()
    return Team.objects.create(name="A", time_zone="America/New_York")


def use(team: Team, hours: list[int]) -> None:
    for hour in hours:
        make_record(team_id=team.pk, key_id=hour % 2, started_at=START + timedelta(hours=hour, minutes=7))
    rate_all()


def cells(team: Team, zone: str, interval: Interval = Interval.DAY, **options: Any) -> Any:
    return UsageQuery(team.pk, START, END, ZoneInfo(zone), interval, **options).run().cells


def readable_from_days(team: Team) -> int:
    """What a report of the team's own zone still says once the quarter hours are gone."""
    Rollup.objects.filter(team_id=team.pk).delete()
    report = UsageQuery(team.pk, START, END, ZoneInfo(team.time_zone)).run()
    return report.total.requests


def test_a_report_reads_days_where_it_can(team: Team) -> None:
    use(team, list(range(0, 120, 5)))
    before = {zone: cells(team, zone) for zone in ZONES}
    assert sum_days(now=NOW) == 7
    assert sum_days(now=NOW) == 0
    assert {zone: cells(team, zone) for zone in ZONES} == before
    # From New York's first midnight to its last within the period.
    assert readable_from_days(team) == sum(4 <= hour < 101 for hour in range(0, 120, 5))


def test_a_day_is_summed_when_it_has_been_over_for_a_while(team: Team) -> None:
    use(team, [10])
    midnight = datetime(2026, 10, 31, 4, tzinfo=UTC)
    assert sum_days(now=midnight + timedelta(hours=1, minutes=59)) == 0
    assert sum_days(now=midnight + timedelta(hours=2)) == 1


def test_what_comes_late_counts_at_once_and_is_summed_again(team: Team) -> None:
    use(team, [10, 40])
    sum_days(now=NOW)
    use(team, [11])
    assert sum(sums.requests for sums in cells(team, team.time_zone).values()) == 3
    assert sum_days(now=NOW) == 1
    assert list(reconcile()) == []
    assert readable_from_days(team) == 3


def test_corrections_and_rebuilt_rollups_reach_the_days(team: Team) -> None:
    use(team, [10])
    sum_days(now=NOW)
    make_rate(meter="input", rate="1", effective_from=START - timedelta(hours=1))
    call_command("reprice", "--from", "2026-10-30", "--to", "2026-11-04", stdout=StringIO())
    assert SummedDay.objects.filter(is_stale=True).count() == 1
    assert list(reconcile()) == []
    sum_days(now=NOW)
    Rollup.objects.create(quarter_at=START + timedelta(hours=12), team_id=team.pk, model="made up", requests=4)
    assert any("is not its rollups" in str(difference) for difference in reconcile())
    call_command("rebuild_rollups", stdout=StringIO())
    sum_days(now=NOW)
    assert list(reconcile()) == []


def test_a_team_that_moves_has_its_days_summed_anew(team: Team) -> None:
    use(team, [3, 10, 40, 70])
    sum_days(now=NOW)
    team.time_zone = "Asia/Shanghai"
    team.save()
    before = cells(team, "Asia/Shanghai")
    assert sum_days(now=NOW) > 0
    assert cells(team, "Asia/Shanghai") == before
    assert list(reconcile()) == []


def test_a_run_gives_way_and_the_next_goes_on(team: Team) -> None:
    use(team, [10, 90])
    assert [sum_days(now=NOW, limit=4), sum_days(now=NOW, limit=4), sum_days(now=NOW, limit=4)] == [4, 2, 0]


def test_an_edited_day_is_a_difference(team: Team) -> None:
    use(team, [10])
    sum_days(now=NOW)
    DayRollup.objects.update(amount_ppt=1)
    assert [str(found) for found in reconcile()] == [
        f"the summed day of team {team.pk} from 2026-10-30 04:00 UTC is not its rollups"
    ]


class DayProperties(TestCase):
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.lists(st.integers(0, 119), min_size=1, max_size=10),
        st.lists(st.integers(0, 119), max_size=3),
        st.sampled_from(ZONES),
        st.sampled_from(ZONES),
        st.sampled_from([Interval.DAY, Interval.MONTH, Interval.HOUR]),
        st.integers(0, 400),
        st.integers(1, 400),
    )
    def test_reports_are_the_same_with_and_without_summed_days(
        self, hours: list[int], late: list[int], home: str, zone: str, interval: Interval, quarters: int, length: int
    ) -> None:
        load_rates()
        team = Team.objects.create(name="A", time_zone=home)
        use(team, hours)
        sum_days(now=NOW)
        use(team, late)
        start = START + timedelta(minutes=15 * quarters)
        query = UsageQuery(
            team.pk, start, start + timedelta(minutes=15 * length), ZoneInfo(zone), interval, (GroupBy.KEY,)
        )
        found = query.run().cells
        SummedDay.objects.all().delete()
        assert found == query.run().cells
