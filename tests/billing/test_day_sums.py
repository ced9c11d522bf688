"""Days summed once more say what their quarter hours say, or step aside."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core.management import call_command
from django.db.models import F, Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from accounts.models import Team
from billing.buckets import QUARTER, Interval
from billing.cells import mark_stale
from billing.day_sums import MONTH_LEVELS, sum_days, summed_months
from billing.models import DayRollup, Rollup, SummedDay
from billing.rates import load_rates
from billing.reconciliation import reconcile
from billing.report_models import Level, Summary, SummedMonth
from billing.reports import GroupBy, UsageQuery
from tests.billing.factories import make_rate, make_record, rate_all

# New York's clock goes back on 1 November 2026: a day of 25 hours.
START, END = datetime(2026, 10, 30, tzinfo=UTC), datetime(2026, 11, 4, tzinfo=UTC)
NOW = datetime(2026, 11, 5, 12, tzinfo=UTC)
ZONES = ["America/New_York", "Asia/Kathmandu", "Asia/Shanghai", "Australia/Lord_Howe", "UTC"]
# Clocks change in it, and months begin.
SPRING = datetime(2026, 2, 25, tzinfo=UTC)
DAYS = 45
VALUES: dict[GroupBy, str | int] = {
    GroupBy.KEY: 3,
    GroupBy.MEMBER: 1,
    GroupBy.MODEL: "m1",
    GroupBy.ENDPOINT: "chat",
    GroupBy.SOURCE: "api",
}


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
    """What a report by key of the team's own zone still says once the quarter hours are gone."""
    Rollup.objects.filter(team_id=team.pk).delete()
    report = UsageQuery(team.pk, START, END, ZoneInfo(team.time_zone), group_by=(GroupBy.KEY,)).run()
    return report.total.requests


def test_a_report_reads_days_where_it_can(team: Team) -> None:
    use(team, list(range(0, 120, 5)))
    before = {zone: cells(team, zone) for zone in ZONES}
    # From the first of the month of the first request.
    assert sum_days(now=NOW) == 35
    assert sum_days(now=NOW) == 0
    assert {zone: cells(team, zone) for zone in ZONES} == before
    # From New York's first midnight on: of the day in which the period ends most is wanted.
    assert readable_from_days(team) == sum(hour >= 4 for hour in range(0, 120, 5))


def test_a_day_is_summed_when_it_has_been_over_for_a_while(team: Team) -> None:
    use(team, [10])
    midnight = datetime(2026, 10, 31, 4, tzinfo=UTC)
    assert sum_days(now=midnight + timedelta(hours=1, minutes=59)) == 29
    assert sum_days(now=midnight + timedelta(hours=2)) == 1


def test_a_month_grows_by_its_days_and_is_read_alone(team: Team) -> None:
    use(team, [10, 40])
    november = datetime(2026, 11, 1, 4, tzinfo=UTC)
    sum_days(now=november + timedelta(hours=1))
    month = SummedMonth.objects.get()
    assert (month.starts_at, month.ends_at) == (datetime(2026, 10, 1, 4, tzinfo=UTC), november - timedelta(days=1))
    sum_days(now=november + timedelta(hours=2))
    month.refresh_from_db()
    assert (month.ends_at, month.is_stale) == (november, False)
    # A report of all October reads the month alone.
    DayRollup.objects.all().delete()
    Summary.objects.exclude(level__gte=Level.MODEL_MONTH).delete()
    Rollup.objects.all().delete()
    october = UsageQuery(team.pk, month.starts_at, month.ends_at, ZoneInfo(team.time_zone), Interval.MONTH)
    for by in GroupBy:
        assert replace(october, group_by=(by,)).run().total.requests == 2
    assert replace(october, group_by=(GroupBy.KEY, GroupBy.MODEL)).run().total.requests == 2


def test_of_a_busy_day_the_hours_so_far_are_summed(team: Team) -> None:
    midnight = datetime(2026, 11, 3, 5, tzinfo=UTC)
    Rollup.objects.bulk_create(
        Rollup(team_id=team.pk, quarter_at=midnight + number % 24 * QUARTER, key_id=number, model="m", requests=1)
        for number in range(3_000)
    )
    day = SummedDay.objects.filter(starts_at=midnight)
    sum_days(now=midnight + timedelta(hours=3, minutes=50))
    assert not day.exists()
    sum_days(now=midnight + timedelta(hours=5, minutes=50))
    assert day.get().ends_at == midnight + timedelta(hours=3)
    before = cells(team, team.time_zone, group_by=(GroupBy.KEY,))
    assert sum(sums.requests for sums in before.values()) == 3_000
    # Once the quarter hours are gone, what was summed is still there.
    Rollup.objects.filter(quarter_at__lt=midnight + timedelta(hours=3)).delete()
    assert cells(team, team.time_zone, group_by=(GroupBy.KEY,)) == before
    Rollup.objects.bulk_create(
        Rollup(team_id=team.pk, quarter_at=midnight + number * QUARTER, key_id=number % 2, model="m", requests=2)
        for number in range(96)
    )
    mark_stale({(team.pk, midnight)})
    sum_days(now=midnight + timedelta(hours=26))
    assert day.get().ends_at == midnight + timedelta(days=1)
    whole = cells(team, team.time_zone, group_by=(GroupBy.KEY,))
    SummedDay.objects.all().delete()
    assert cells(team, team.time_zone, group_by=(GroupBy.KEY,)) == whole


def test_a_month_of_which_most_is_wanted_is_read_less_the_rest(team: Team) -> None:
    """Key 0 is used on the days that are taken away alone: nothing is left of it."""
    use(team, [27, 50, 51])
    sum_days(now=NOW)
    zone = ZoneInfo(team.time_zone)
    for first, last in ((date(2026, 10, 3), date(2026, 10, 31)), (date(2026, 10, 1), date(2026, 10, 30))):
        query = UsageQuery.for_days(team.pk, first, last, zone, group_by=(GroupBy.KEY,))
        ranked, groups, total = query.ranked(), query.of_groups([(0,), (1,)]).by_group, query.total()
        assert (total, groups) == (query.run().total, query.run().by_group)
        assert [group.key for group in ranked] == list(query.run().ranked)
    Rollup.objects.all().delete()
    DayRollup.objects.all().delete()
    Summary.objects.filter(level=Level.KEY_DAY, starts_at__lt=datetime(2026, 10, 31, 4, tzinfo=UTC)).delete()
    but_the_last = UsageQuery.for_days(team.pk, date(2026, 10, 1), date(2026, 10, 30), zone, group_by=(GroupBy.KEY,))
    assert [group.key for group in but_the_last.ranked()] == [(1,)]


def test_a_day_of_which_most_is_wanted_is_read_less_the_rest(team: Team) -> None:
    """Lima's days begin an hour after New York's in summer and with them in winter."""
    # At half past midnight by New York's clock of the 30th, later that day, and on the two days after it.
    use(team, [4, 11, 40, 64])
    sum_days(now=NOW)
    zone = ZoneInfo("America/Lima")
    query = UsageQuery.for_days(team.pk, date(2026, 10, 30), date(2026, 11, 1), zone, group_by=(GroupBy.KEY,))
    whole = query.run()
    assert whole.total.requests == 3
    # Whatever lies outside of the hour that is taken away again is gone.
    midnight = START + timedelta(hours=4)
    Rollup.objects.exclude(quarter_at__gte=midnight, quarter_at__lt=midnight + timedelta(hours=1)).delete()
    assert query.total() == whole.total
    assert [(group.key, whole.by_group[group.key].requests) for group in query.ranked()] == [((0,), 2), ((1,), 1)]


def test_the_days_of_another_zone_are_read_from_the_teams_days_and_the_quarters_beside(team: Team) -> None:
    use(team, [20, 40, 44])
    sum_days(now=NOW)
    query = UsageQuery.for_days(team.pk, date(2026, 10, 31), date(2026, 11, 2), ZoneInfo("Asia/Kathmandu"))
    whole = query.run()
    Rollup.objects.all().delete()
    Summary.objects.exclude(level__in=[Level.TEAM_QUARTER, Level.TEAM_DAY]).delete()
    # Between New York's midnight and Kathmandu's, on the one day with requests, nothing but the day is looked at.
    within = (START + timedelta(hours=28), START + timedelta(hours=42))
    Summary.objects.filter(level=Level.TEAM_QUARTER, starts_at__range=within).delete()
    assert query.of_groups([]).by_bucket == whole.by_bucket
    assert [sums.requests for sums in whole.by_bucket.values()] == [2, 1]


def test_what_comes_late_makes_its_month_wait_for_the_day(team: Team) -> None:
    use(team, [10])
    sum_days(now=NOW)
    october = [datetime(2026, 10, 1, 4, tzinfo=UTC)]
    assert list(summed_months(team.pk, SPRING, NOW))[:1] == october
    use(team, [11])
    assert list(summed_months(team.pk, SPRING, NOW))[:1] != october
    sum_days(now=NOW)
    assert list(summed_months(team.pk, SPRING, NOW))[:1] == october
    month = Summary.objects.filter(level=Level.MODEL_MONTH, starts_at__in=october)
    assert month.aggregate(total=Sum("requests"))["total"] == 2


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
    assert [sum_days(now=NOW, limit=20) for _ in range(3)] == [20, 15, 0]
    assert SummedMonth.objects.filter(is_stale=False).count() == 2


def test_a_team_whose_sums_do_not_fit_keeps_nobody_else_waiting(team: Team, caplog: pytest.LogCaptureFixture) -> None:
    use(team, [10, 11])
    Rollup.objects.update(amount_ppt=2**63 - 1)
    other = Team.objects.create(name="B", time_zone="UTC")
    use(other, [10])
    sum_days(now=NOW)
    assert f"Days of team {team.pk} could not be summed" in caplog.text
    assert SummedDay.objects.filter(team_id=other.pk, is_stale=False).count() == 35
    assert sum(sums.amount_ppt for sums in cells(team, "UTC").values()) == 2 * (2**63 - 1)


def test_an_edited_day_is_a_difference(team: Team) -> None:
    use(team, [10])
    sum_days(now=NOW)
    DayRollup.objects.update(amount_ppt=1)
    assert [str(found) for found in reconcile()] == [
        f"the summed day of team {team.pk} from 2026-10-30 04:00 UTC is not its rollups"
    ]


@pytest.mark.parametrize("level", list(Level))
def test_an_edited_sum_of_any_grouping_is_a_difference(team: Team, level: Level) -> None:
    use(team, [10])
    sum_days(now=NOW)
    assert list(reconcile()) == []
    assert Summary.objects.filter(level=level).update(requests=F("requests") + 1)
    span = "month" if level in MONTH_LEVELS else "day"
    begins = "2026-10-01 04:00" if span == "month" else "2026-10-30 04:00"
    found = next(map(str, reconcile()))
    assert found == f"the summed {span} of team {team.pk} from {begins} UTC is not its rollups"


def make_rollups(team: Team, moments: list[int]) -> None:
    """Quarter hours of a spring, each of a key, member, model and source of its own."""
    Rollup.objects.bulk_create(
        Rollup(
            team_id=team.pk,
            quarter_at=SPRING + number * QUARTER,
            key_id=number % 5,
            member_id=number % 3,
            model=f"m{number % 4}",
            endpoint="chat" if number % 2 else "ocr",
            source="api" if number % 7 else "playground",
            requests=1 + number % 9,
            errors=number % 2,
            input_units=number,
            amount_ppt=number * 1_000_003,
        )
        for number in sorted(set(moments))
    )


class SummedReports(TestCase):
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def test_reports_are_the_same_with_and_without_summed_days(self, data: st.DataObject) -> None:
        quarters = st.integers(0, DAYS * 96)
        team = Team.objects.create(name="A", time_zone=data.draw(st.sampled_from(ZONES)))
        make_rollups(team, data.draw(st.lists(quarters, min_size=1, max_size=60)))
        sum_days(now=SPRING + timedelta(days=data.draw(st.integers(1, DAYS + 5))))
        late = SPRING + data.draw(quarters) * QUARTER
        mark_stale({(team.pk, late)})
        start = SPRING + data.draw(quarters) * QUARTER
        interval = data.draw(st.sampled_from(Interval))
        length = data.draw(st.integers(1, 2_000 if interval == Interval.HOUR else DAYS * 96))
        filters = data.draw(st.dictionaries(st.sampled_from(GroupBy), st.just(0), max_size=2))
        named = {by: VALUES[by] for by in filters}
        groups = data.draw(st.lists(st.sampled_from(GroupBy), min_size=1, max_size=2, unique=True))
        zone = ZoneInfo(data.draw(st.sampled_from(ZONES)))
        query = UsageQuery(team.pk, start, start + length * QUARTER, zone, interval, tuple(groups), named)
        found = query.run()
        in_parts = [part.run() for part in query.parts(groups=10_000)]
        ranked = query.ranked()
        SummedDay.objects.all().delete()
        SummedMonth.objects.all().delete()
        plain = query.run()
        assert found.cells == plain.cells
        assert found.total == plain.total == query.total()
        assert [group.key for group in ranked] == list(plain.ranked)
        assert {cell: sums for part in in_parts for cell, sums in part.cells.items()} == plain.cells

    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def test_what_a_page_shows_is_part_of_the_whole_report(self, data: st.DataObject) -> None:
        team = Team.objects.create(name="A", time_zone=data.draw(st.sampled_from(ZONES)))
        make_rollups(team, data.draw(st.lists(st.integers(0, 5 * 96), min_size=1, max_size=60)))
        sum_days(now=SPRING + timedelta(days=3))
        by = data.draw(st.sampled_from(GroupBy))
        narrow = data.draw(st.lists(st.sampled_from(GroupBy), max_size=2, unique=True))
        query = UsageQuery(
            team.pk, SPRING, SPRING + timedelta(days=5), ZoneInfo(data.draw(st.sampled_from(ZONES))), group_by=(by,),
            filters={by: VALUES[by] for by in narrow},
        )  # fmt: skip
        whole, shown = query.run(), query.overview(drawn=2, listed=3)
        assert (shown.by_bucket, shown.total, shown.count) == (whole.by_bucket, whole.total, whole.count)
        assert shown.ranked[:3] == whole.ranked[:3]
        assert {key: whole.by_group[key] for key in shown.ranked} == shown.by_group
        # Of a day taken whole a group may be left of which all was taken away again.
        drawn = {cell: amount_ppt for cell, amount_ppt in shown.amounts.items() if amount_ppt}
        wanted = {cell: amount_ppt for cell, amount_ppt in whole.amounts.items() if cell[1] in whole.ranked[:2]}
        assert {cell: amount_ppt for cell, amount_ppt in wanted.items() if amount_ppt}.items() <= drawn.items()
        assert drawn.items() <= whole.amounts.items()
        assert whole.amounts == {cell: sums.amount_ppt for cell, sums in whole.cells.items()}
        held = query.of_groups(whole.ranked[1:3])
        assert held.by_bucket == whole.by_bucket
        assert all(held.by_group[key] == whole.by_group[key] for key in whole.ranked[1:3])
