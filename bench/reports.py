"""How fast the usage page's report is over years of rollups: fills the configured, empty database and times queries.

    python bench/reports.py                                   # 100 keys, 120 days, quick
    python bench/reports.py --keys 1000 --days 730 --teams 20 # the full size

Prints one JSON object: milliseconds (median, p95) of one team's 90-day report, by grouping, in the team's own zone (the
first), whose days are summed, and in others, which read quarter hours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

# ruff: noqa: E402 -- Django is set up before models are imported
import django

django.setup()

from django.core.management import call_command
from django.db import connection

from accounts.models import Team
from billing.day_sums import sum_days
from billing.models import Rollup
from billing.reports import GroupBy, UsageQuery

ZONES = ("Asia/Shanghai", "America/New_York", "Asia/Kathmandu")
MODELS = 6


def fill(*, keys: int, days: int, teams: int, busy: int, end: datetime) -> int:
    """Each key works in `busy` quarter hours a day, with one of its three models in each."""
    table = Rollup._meta.db_table
    columns = (
        "quarter_at, team_id, key_id, member_id, model, endpoint, source, requests, errors, input_units,"
        " cache_read_units, output_units, page_units, character_units, amount_ppt"
    )
    with connection.cursor() as cursor:
        for day in range(days):
            start = end - timedelta(days=days - day)
            cursor.execute(
                f"INSERT INTO {table} ({columns})"  # noqa: S608 -- the model's own table
                " SELECT %s::timestamptz + q * interval '15 minutes', 1 + k %% %s, k, k,"
                " 'model-' || (k + q) %% 3 + k %% %s,"
                " 'chat', 'api', 5, 0, 5000, 2000, 1500, 0, 0, 1000000 + k"
                " FROM generate_series(1, %s) k, LATERAL (SELECT (k * 7 + n) %% 96 q FROM generate_series(1, %s) n) s",
                [start, teams, MODELS - 2, keys, busy],
            )
        cursor.execute(f"VACUUM ANALYZE {table}")
        cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608
        return int(cursor.fetchone()[0])


def timed(query: UsageQuery, *, runs: int) -> dict[str, float]:
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        report = query.run()
        _ = report.total, report.by_bucket, report.by_group
        taken.append((time.perf_counter() - begun) * 1_000)
    return {"median_ms": round(statistics.median(taken), 1), "p95_ms": round(sorted(taken)[int(runs * 0.95) - 1], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--days", type=int, default=120)
    parser.add_argument("--teams", type=int, default=4)
    parser.add_argument("--busy", type=int, default=20, help="quarter hours a day in which a key works")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    if connection.vendor != "postgresql":
        parser.error("DATABASE_URL has to name a PostgreSQL database")
    call_command("migrate", verbosity=0)
    if Rollup.objects.exists():
        parser.error("the database has rollups already; give it an empty one")
    end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    rows = fill(keys=options.keys, days=options.days, teams=options.teams, busy=options.busy, end=end)
    for number in range(1, options.teams + 1):
        Team.objects.create(pk=number, name=f"Team {number}", time_zone=ZONES[0])
    begun = time.perf_counter()
    days = sum_days(now=datetime.now(UTC), limit=10**9)
    found: dict[str, object] = {"days_summed": days, "summing_seconds": round(time.perf_counter() - begun, 1)}
    for zone in ZONES:
        for by in (GroupBy.MODEL, GroupBy.KEY):
            query = UsageQuery(1, end - timedelta(days=90), end, ZoneInfo(zone), group_by=(by,))
            found[f"{zone} by {by.value}"] = timed(query, runs=options.runs)
    print(json.dumps({"rollups": rows, "keys": options.keys, "days": options.days, "teams": options.teams} | found))


if __name__ == "__main__":
    main()
