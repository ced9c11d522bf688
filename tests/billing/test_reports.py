"""Reports: exact by any zone's days and hours, and the same sums however they are cut."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from django.db.models import Sum
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import ApiKey, Team, User
from billing.buckets import Interval, buckets, midnight, stretches
from billing.day_sums import sum_days
from billing.models import Charge, Rollup
from billing.rates import load_rates
from billing.reports import GroupBy, ReportError, Sums, UsageQuery, day_totals, usage_by_bucket, usage_totals
from tests.billing.factories import make_record, rate_all

BERLIN = ZoneInfo("Europe/Berlin")
KATHMANDU = ZoneInfo("Asia/Kathmandu")
SHANGHAI = ZoneInfo("Asia/Shanghai")
ZONES = [
    "UTC",
    "Europe/Berlin",
    "Asia/Kathmandu",
    "Asia/Shanghai",
    "America/Havana",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
    "Pacific/Apia",
]


def make_rollup(at: datetime, *, units: int = 1, team_id: int = 7, model: str = "M", key_id: int = 0) -> None:
    Rollup.objects.create(
        quarter_at=at,
        team_id=team_id,
        key_id=key_id,
        model=model,
        endpoint="chat",
        source="api",
        requests=1,
        input_units=units,
        amount_ppt=units * 1_000,
    )


def make_quarters(start: datetime, end: datetime) -> int:
    """One request of one unit in each quarter hour; returns how many there are."""
    quarters = int((end - start) / timedelta(minutes=15))
    Rollup.objects.bulk_create(
        Rollup(
            quarter_at=start + number * timedelta(minutes=15),
            team_id=7,
            model="M",
            endpoint="chat",
            source="api",
            requests=1,
            input_units=1,
            amount_ppt=1_000,
        )
        for number in range(quarters)
    )
    return quarters


def requests_by_bucket(query: UsageQuery) -> dict[str, int]:
    report = query.run()
    return {
        bucket.astimezone(query.zone).isoformat(): report.by_bucket.get(bucket, Sums()).requests
        for bucket in report.buckets
    }


@pytest.mark.django_db
def test_the_day_of_25_hours_has_its_100_quarters() -> None:
    make_quarters(datetime(2026, 10, 23, 22, tzinfo=UTC), datetime(2026, 10, 26, 23, tzinfo=UTC))
    query = UsageQuery.for_days(7, date(2026, 10, 24), date(2026, 10, 26), BERLIN)
    assert requests_by_bucket(query) == {
        "2026-10-24T00:00:00+02:00": 96,
        "2026-10-25T00:00:00+02:00": 100,
        "2026-10-26T00:00:00+01:00": 96,
    }


@pytest.mark.django_db
def test_the_day_of_23_hours_has_its_92_quarters() -> None:
    make_quarters(datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC))
    query = UsageQuery.for_days(7, date(2026, 3, 29), date(2026, 3, 30), BERLIN)
    assert requests_by_bucket(query) == {"2026-03-29T00:00:00+01:00": 92, "2026-03-30T00:00:00+02:00": 96}


@pytest.mark.django_db
def test_the_hour_that_comes_twice_is_two_hours() -> None:
    make_quarters(datetime(2026, 10, 25, 0, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC))
    start, end = datetime(2026, 10, 25, 0, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC)
    query = UsageQuery(7, start, end, BERLIN, Interval.HOUR)
    assert requests_by_bucket(query) == {
        "2026-10-25T02:00:00+02:00": 4,
        "2026-10-25T02:00:00+01:00": 4,
        "2026-10-25T03:00:00+01:00": 4,
    }


@pytest.mark.django_db
def test_a_day_in_kathmandu_begins_at_a_quarter_past_six_in_the_evening() -> None:
    boundary = datetime(2026, 11, 9, 18, 15, tzinfo=UTC)
    make_rollup(boundary - timedelta(minutes=15))
    make_rollup(boundary)
    query = UsageQuery.for_days(7, date(2026, 11, 9), date(2026, 11, 10), KATHMANDU)
    assert requests_by_bucket(query) == {"2026-11-09T00:00:00+05:45": 1, "2026-11-10T00:00:00+05:45": 1}
    hourly = UsageQuery(7, boundary, boundary + timedelta(hours=1), KATHMANDU, Interval.HOUR)
    assert requests_by_bucket(hourly) == {"2026-11-10T00:00:00+05:45": 1}


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("by", [GroupBy.MODEL, GroupBy.KEY])
def test_weeks_of_a_zone_are_the_same_out_of_the_summed_days_of_another(zone: str, by: GroupBy) -> None:
    """Shanghai's days begin before Kathmandu's, after Tokyo's, and half a day away from New York's."""
    Team.objects.create(pk=7, name="A", time_zone="Asia/Shanghai")
    start, end = datetime(2026, 3, 1, 6, tzinfo=UTC), datetime(2026, 3, 22, 15, tzinfo=UTC)
    for number in range(0, 21 * 96, 7):
        make_rollup(start + number * timedelta(minutes=15), units=1 + number, key_id=number % 2)
    query = UsageQuery(7, start, end, ZoneInfo(zone), group_by=(by,))
    plain = query.run()
    assert sum_days(now=end) > 20
    assert query.run().cells == plain.cells
    assert query.overview(drawn=2, listed=2).amounts == plain.amounts


@pytest.mark.django_db
def test_months_are_the_zones_months() -> None:
    make_rollup(datetime(2026, 9, 30, 15, 45, tzinfo=UTC))
    make_rollup(datetime(2026, 9, 30, 16, 0, tzinfo=UTC))
    make_rollup(datetime(2026, 10, 31, 15, 45, tzinfo=UTC))
    query = UsageQuery.for_days(7, date(2026, 9, 1), date(2026, 11, 30), SHANGHAI, interval=Interval.MONTH)
    assert requests_by_bucket(query) == {
        "2026-09-01T00:00:00+08:00": 1,
        "2026-10-01T00:00:00+08:00": 2,
        "2026-11-01T00:00:00+08:00": 0,
    }


@pytest.mark.django_db
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("interval", Interval)
def test_every_quarter_lies_in_one_bucket_of_the_period(zone: str, interval: Interval) -> None:
    """Around each change of clock of 2026 in these zones."""
    for first in (date(2026, 3, 7), date(2026, 3, 28), date(2026, 4, 4), date(2026, 9, 26), date(2026, 10, 24)):
        Rollup.objects.all().delete()
        query = UsageQuery.for_days(7, first, first + timedelta(days=2), ZoneInfo(zone), interval=interval)
        quarters = make_quarters(query.start, query.end)
        report = query.run()
        assert report.total.requests == quarters
        assert set(report.by_bucket) <= set(report.buckets)
        assert sum(requests_by_bucket(query).values()) == quarters
        if interval == Interval.DAY:
            assert len(report.buckets) == 3


@given(st.sampled_from(ZONES), st.dates(date(2000, 1, 1), date(2030, 1, 1)), st.integers(1, 60))
def test_buckets_ascend_without_a_gap(zone_name: str, first: date, days: int) -> None:
    zone = ZoneInfo(zone_name)
    start, end = midnight(first, zone), midnight(first + timedelta(days=days), zone)
    if start >= end:  # Apia went without 2011-12-30
        return
    for interval in (Interval.HOUR, Interval.DAY):
        found = list(buckets(start, end, interval=interval, zone=zone))
        assert found[0] == start
        assert all(before <= after for before, after in pairwise(found))
    parts = stretches(start, end, zone)
    assert parts[0].starts_at == start
    for part in parts[1:]:
        assert part.offset_seconds == _offset(part.starts_at, zone)
        assert part.offset_seconds != _offset(part.starts_at - timedelta(minutes=15), zone)


def _offset(at: datetime, zone: ZoneInfo) -> int:
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@pytest.mark.django_db
def test_totals_are_the_sums_of_their_parts_and_of_the_charges() -> None:
    load_rates()
    models = ["DeepSeek-V4-Flash", "Qwen3.8-27B", "d3", "house-model"]
    started = datetime(2026, 11, 1, tzinfo=UTC)
    for number in range(60):
        make_record(
            model=models[number % 4],
            key_id=number % 3,
            prompt_tokens=1_000 + 7 * number,
            outcome="error" if number % 10 == 9 else "ok",
            status=502 if number % 10 == 9 else 200,
            started_at=started + number * timedelta(hours=5, minutes=7),
        )
    make_record(team_id=8)
    rate_all()
    start, end = started, started + timedelta(days=20)
    charged = Charge.objects.filter(record__team_id=7).aggregate(total=Sum("amount_ppt"))["total"]
    for group_by in GroupBy:
        report = usage_by_bucket(7, start, end, KATHMANDU, group_by=group_by)
        assert report.total.amount_ppt == charged
        assert (report.total.requests, report.total.errors) == (60, 6)
        assert Sums.of(report.by_bucket.values()) == report.total
        assert Sums.of(report.by_group.values()) == report.total
        assert Sums.of(row.sums for row in report.rows()) == report.total
        assert usage_totals(7, start, end) == report.total


@pytest.mark.django_db
def test_days_without_usage_are_there() -> None:
    make_rollup(datetime(2026, 11, 2, 12, tzinfo=UTC))
    rows = list(UsageQuery.for_days(7, date(2026, 11, 1), date(2026, 11, 3), SHANGHAI).run().rows())
    assert [(row.bucket.astimezone(SHANGHAI).day, row.sums.requests) for row in rows] == [(1, 0), (2, 1), (3, 0)]
    assert [row.group and row.group.label for row in rows] == [None, "M", None]


@pytest.mark.django_db
def test_only_the_teams_own_usage_is_counted() -> None:
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    make_rollup(at, units=5)
    make_rollup(at, units=11, team_id=8)
    assert UsageQuery.for_days(7, date(2026, 11, 2), date(2026, 11, 2), SHANGHAI).run().total.input == 5


@pytest.mark.django_db
def test_filters_narrow_and_groups_combine() -> None:
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    make_rollup(at, units=1, model="A", key_id=1)
    make_rollup(at, units=2, model="A", key_id=2)
    make_rollup(at, units=4, model="B", key_id=1)
    day = date(2026, 11, 2)
    both = UsageQuery.for_days(7, day, day, SHANGHAI, group_by=(GroupBy.MODEL, GroupBy.KEY)).run()
    assert {group.key: both.by_group[group.key].input for group in both.groups} == {
        ("B", 1): 4,
        ("A", 2): 2,
        ("A", 1): 1,
    }
    only = UsageQuery.for_days(7, day, day, SHANGHAI, filters={GroupBy.KEY: 1}).run()
    assert only.total.input == 5


@pytest.mark.django_db
def test_groups_carry_the_names_that_people_know() -> None:
    team = Team.objects.create(name="T", time_zone="UTC")
    person = User.objects.create_user("mei@example.com", name="Mei")
    key = ApiKey.objects.create(team=team, name="ci", digest="0" * 64, prefix="rc-1234", last_four="abcd")
    stranger = ApiKey.objects.create(
        team=Team.objects.create(name="O", time_zone="UTC"), name="other", digest="1" * 64, prefix="p", last_four="l"
    )
    at = datetime(2026, 11, 2, 12, tzinfo=UTC)
    for number, key_id in enumerate((0, key.pk, stranger.pk)):
        make_rollup(at, team_id=team.pk, units=number + 1, key_id=key_id)
    Rollup.objects.update(member_id=person.pk)
    day = date(2026, 11, 2)

    def labels(by: GroupBy) -> list[str]:
        return [group.label for group in UsageQuery.for_days(team.pk, day, day, SHANGHAI, group_by=(by,)).run().groups]

    assert labels(GroupBy.KEY) == [str(stranger.pk), "ci (rc-1234…abcd)", "Without a key"]
    assert labels(GroupBy.MEMBER) == ["Mei"]
    assert labels(GroupBy.SOURCE) == ["API"]


@pytest.mark.django_db
def test_sums_beyond_64_bits_stay_exact() -> None:
    for hour in range(4):
        make_rollup(datetime(2026, 11, 2, hour, tzinfo=UTC))
    Rollup.objects.update(amount_ppt=2**63 - 1)
    start, end = datetime(2026, 11, 2, tzinfo=UTC), datetime(2026, 11, 3, tzinfo=UTC)
    assert usage_totals(7, start, end).amount_ppt == 4 * (2**63 - 1)


@pytest.mark.django_db
def test_the_last_days_are_the_zones_days() -> None:
    now = datetime(2026, 11, 2, 17, tzinfo=UTC)  # the third in Shanghai, one hour old
    make_rollup(now - timedelta(hours=2), units=10)
    make_rollup(now, units=1)
    assert day_totals(7, SHANGHAI, days=1, now=now).input == 1
    assert day_totals(7, SHANGHAI, days=2, now=now).input == 11


def test_a_period_that_no_report_can_show_is_refused() -> None:
    with pytest.raises(ReportError, match="ends before"):
        UsageQuery.for_days(7, date(2026, 11, 2), date(2026, 11, 1), SHANGHAI)
    with pytest.raises(ReportError, match="too long"):
        UsageQuery.for_days(7, date(2025, 11, 2), date(2026, 11, 1), SHANGHAI, interval=Interval.HOUR)


def test_a_period_is_widened_to_whole_quarters() -> None:
    start, end = datetime(2026, 11, 2, 12, 7, tzinfo=UTC), datetime(2026, 11, 2, 12, 31, tzinfo=UTC)
    query = UsageQuery(7, start, end, SHANGHAI)
    assert (query.start.minute, query.end.minute) == (0, 45)


def test_the_cache_share_is_that_of_the_prompt() -> None:
    assert Sums(input=600, cache_read=400).cache_share == 0.4
    assert Sums().cache_share is None
    assert Sums(amount_ppt=141_120_000).points == "0.00014112"
