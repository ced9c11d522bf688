"""How fast the usage page is over years of sums: fills the configured, empty PostgreSQL database and times whole pages.

    uv run bench/reports.py                             # 100 keys, 120 days, quick
    uv run bench/reports.py --keys 1000 --days 730      # the full size: what 100 million requests leave behind
    uv run bench/reports.py --reuse --runs 50 --write   # time again, and put the table into docs/performance.md

All keys belong to one team, the hardest case. For each address of the page the table has its milliseconds (median, p95)
in this process, database and templates included, the processor time of both, which is nearly the same on a busy
machine, how many statements it took, and how many rows of requests and charges PostgreSQL read for it. Each is opened a
few times before it is timed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

# ruff: noqa: E402 -- Django is set up before models are imported
import product

product.set_up()

from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test import Client
from rating_speed import insert_rated, processor_seconds
from report import machine, progress, write_page

from accounts.keys import issue_key
from accounts.models import ApiKey, User
from accounts.teams import personal_team
from billing.day_sums import sum_days
from billing.models import Charge, Rollup, SummedDay, UsageRecord
from billing.report_models import LatencyCount
from config.server import spare_the_collector

MODELS = 6
# Of all requests only these are there as such: enough that reading any would be seen.
RAW_ROWS = 100_000
MUST_MS, AIM_MS = 150, 50
PAGES = {
    "30 days by model": "period=30",
    "90 days by model": "period=90",
    "90 days by key": "period=90&group=key",
    "90 days by member": "period=90&group=member",
    "90 days of one model by key": "period=90&group=key&model=model-2",
    "90 days of one key by model": "period=90&key={key}",
    "12 months by key": "period=365&group=key",
    "12 months by key, day by day": "period=365&group=key&interval=day",
    "24 months by model": "start={first}&end={last}",
    "24 months by key": "start={first}&end={last}&group=key",
    "24 months by member": "start={first}&end={last}&group=member",
    "24 months of one model by key": "start={first}&end={last}&group=key&model=model-2",
    "24 months of one key by model": "start={first}&end={last}&key={key}",
    "10 days by key, by the hour": "start={tenth}&end={last}&group=key&interval=hour",
    "90 days by model, Kathmandu": "period=90&tz=Asia/Kathmandu",
    "90 days by key, Kathmandu": "period=90&group=key&tz=Asia/Kathmandu",
}


def fill(*, team: int, keys: int, days: int, busy: int, end: datetime) -> None:
    """Each key works in `busy` quarter hours a day, with one of its three models in each, today up to now."""
    rollups, latencies = Rollup._meta.db_table, LatencyCount._meta.db_table
    now = datetime.now(UTC)
    with connection.cursor() as cursor:
        for day in range(days):
            start = end - timedelta(days=days - 1 - day)
            cursor.execute(
                f"INSERT INTO {rollups} (quarter_at, team_id, key_id, member_id, model, endpoint, source, requests,"  # noqa: S608 -- the models' own tables
                " errors, input_units, cache_read_units, output_units, page_units, character_units, amount_ppt)"
                " SELECT %s::timestamptz + q * interval '15 minutes', %s, k, 1 + k / 2,"
                " 'model-' || (k + q) %% 3 + k %% %s, 'chat', 'api', 7, 0, 7000, 2800, 2100, 0, 0, 1400000 + k"
                " FROM generate_series(1, %s) k, LATERAL (SELECT (k * 7 + n) %% 96 q FROM generate_series(1, %s) n) s"
                " WHERE %s::timestamptz + q * interval '15 minutes' <= %s",
                [start, team, MODELS - 2, keys, busy, start, now],
            )
            cursor.execute(
                f"INSERT INTO {latencies} (team_id, span, starts_at, model, endpoint, source, step, first_tokens,"  # noqa: S608
                " answers) SELECT %s, 1, %s::timestamptz + q * interval '15 minutes', 'model-' || m, 'chat', 'api',"
                " 30 + s, 5, 5 FROM generate_series(0, 95) q, generate_series(0, %s) m, generate_series(1, 15) s"
                " WHERE %s::timestamptz + q * interval '15 minutes' <= %s",
                [team, start, MODELS - 1, start, now],
            )


def without_indexes(tables: list[str]) -> list[str]:
    """Drop what slows filling down; returns the statements that bring it back."""
    again = []
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(
                "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), c.conname, "
                "pg_get_constraintdef(c.oid) FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid "
                "WHERE i.indrelid = %s::regclass AND NOT i.indisprimary",
                [table],
            )
            for index, definition, constraint, text in cursor.fetchall():
                if constraint:
                    cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
                    again.append(f"ALTER TABLE {table} ADD CONSTRAINT {constraint} {text}")
                else:
                    cursor.execute(f"DROP INDEX {index}")
                    again.append(definition)
    return again


def prepare(options: argparse.Namespace, end: datetime) -> dict[str, Any]:
    call_command("migrate", verbosity=0)
    if Rollup.objects.exists():
        raise SystemExit("the database has rollups already; give it an empty one, or --reuse")
    lead = User.objects.create_user("lead@example.com", name="Lead")
    team = personal_team(user=lead)
    for number in range(options.keys):
        issue_key(team=team, created_by=lead, name=f"key {number + 1}")
    User.objects.bulk_create(
        User(email=f"member{number}@example.com", name=f"Member {number}") for number in range(options.keys // 2)
    )
    begun = time.perf_counter()
    insert_rated(1, RAW_ROWS, of=RAW_ROWS)
    again = without_indexes([Rollup._meta.db_table, LatencyCount._meta.db_table])
    fill(team=team.pk, keys=options.keys, days=options.days, busy=options.busy, end=end)
    with connection.cursor() as cursor:
        for statement in again:
            cursor.execute(statement)
        cursor.execute("VACUUM ANALYZE")
    filled = time.perf_counter()
    days = sum_days(now=datetime.now(UTC), limit=10**9)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    return {
        "filling_seconds": round(filled - begun, 1),
        "days_summed": days,
        "summing_seconds": round(time.perf_counter() - filled, 1),
    }


def timed(client: Client, address: str, *, runs: int) -> dict[str, float]:
    statements = 0

    def count(execute: Any, *arguments: Any) -> Any:
        nonlocal statements
        statements += 1
        return execute(*arguments)

    with connection.execute_wrapper(count):
        answer = client.get(address)
    if answer.status_code != 200:
        raise SystemExit(f"{address} answered {answer.status_code}")
    for _ in range(2):
        client.get(address)
    taken, cpu = [], processor_seconds()
    for _ in range(runs):
        begun = time.perf_counter()
        client.get(address)
        taken.append((time.perf_counter() - begun) * 1_000)
    cpu = processor_seconds() - cpu
    read = raw_rows_read()
    client.get(address)
    read = raw_rows_read() - read
    taken.sort()
    return {
        "median_ms": round(statistics.median(taken), 1),
        "p95_ms": round(taken[max(0, round(runs * 0.95) - 1)], 1),
        "cpu_ms": round(cpu / runs * 1_000, 1),
        "statements": statements,
        "raw_rows": read,
        "kilobytes": round(len(answer.content) / 1_000),
    }


def raw_rows_read() -> int:
    """Rows of requests and charges, and entries of their indexes, that the database has read so far."""
    tables = [UsageRecord._meta.db_table, Charge._meta.db_table]
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT (SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables"
            " WHERE relname = ANY(%s)) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = ANY(%s))",
            [tables, tables],
        )
        return int(cursor.fetchone()[0])


def markdown(found: dict[str, Any], *, runs: int, machine: str) -> str:
    """The table of docs/performance.md."""
    head = ["", "median, ms", "p95, ms", "processor time, ms", "statements", "raw rows read", "kB"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, one in found["pages"].items():
        figures = ("median_ms", "p95_ms", "cpu_ms", "statements", "raw_rows", "kilobytes")
        lines.append([name, *(f"{one[figure]:,}" for figure in figures)])
    slow = [name for name, one in found["pages"].items() if one["p95_ms"] > MUST_MS]
    quick = sum(one["p95_ms"] <= AIM_MS for one in found["pages"].values())
    made = (
        f"{found['requests']:,} requests of {found['keys']:,} keys in {found['rollups']:,} rollups,"
        f" {found['summed_days']:,} days summed"
    )
    verdict = f"p95 must be at most {MUST_MS} ms: " + (f"not met by {', '.join(slow)}" if slow else "met by each page")
    return "\n".join([
        f"Measured on {datetime.now(UTC).date()}, {runs} times each: {machine}. PostgreSQL has {made}.", "",
        *(f"| {' | '.join(line)} |" for line in lines), "",
        f"{verdict}. The aim, {AIM_MS} ms, is met by {quick} of {len(found['pages'])}.",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--days", type=int, default=120)
    parser.add_argument("--busy", type=int, default=20, help="quarter hours a day in which a key works")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--reuse", action="store_true", help="the database was filled by an earlier run")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--only", default="", help="pages whose name holds this text")
    options = parser.parse_args()
    if connection.vendor != "postgresql":
        parser.error("DATABASE_URL has to name a PostgreSQL database")
    settings.ALLOWED_HOSTS = ["testserver"]
    measured_on = machine()
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if not options.reuse:
        progress(str(prepare(options, today)))
    # As beat does every five minutes.
    sum_days(now=datetime.now(UTC), limit=10**9)
    found: dict[str, Any] = {"keys": ApiKey.objects.count()}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*), sum(requests) FROM {Rollup._meta.db_table}")  # noqa: S608
        found["rollups"], found["requests"] = map(int, cursor.fetchone())
    found["summed_days"] = SummedDay.objects.filter(is_stale=False).count()
    client = Client()
    client.force_login(User.objects.get(email="lead@example.com"))
    first = Rollup.objects.order_by("team_id", "quarter_at").values_list("quarter_at", flat=True)[0]
    days = {"last": today, "first": first, "tenth": today - timedelta(days=9)}
    words = {name: f"{day:%Y-%m-%d}" for name, day in days.items()} | {"key": str(ApiKey.objects.order_by("pk")[7].pk)}
    pages = {name: query for name, query in PAGES.items() if options.only in name}
    client.get("/usage/")
    spare_the_collector()
    found["pages"] = {
        name: timed(client, f"/usage/?{query.format(**words)}", runs=options.runs) for name, query in pages.items()
    }
    text = markdown(found, runs=options.runs, machine=measured_on)
    print(text)
    if options.write:
        write_page(text, part="reports")


if __name__ == "__main__":
    main()
