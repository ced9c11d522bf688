"""How fast one process rates: puts usage records into the configured, empty database and times `billing.rating`.

    uv run bench/rating_speed.py --records 50000        # prints one JSON object
    uv run bench/rating_speed.py --records 50000 --rated 0 1000000 10000000
                                                        # one each, with so many rated before (PostgreSQL alone)
    uv run bench/rating_speed.py --records 50000 --workers 4    # shared out between so many processes

Rating is what the Celery worker's task calls in a loop, one transaction a batch. `cpu_us` is the processor time of a
record, in this process and in the database's (where that is on this machine): unlike the seconds it is nearly the same
on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

# ruff: noqa: E402 -- Django is set up before models are imported
import product

product.set_up()

from django.core.management import call_command
from django.db import connection, transaction

from billing.bulk import insert_json
from billing.models import Charge, Rate, UsageRecord
from billing.rating import rate_waiting

INSERT_ROWS = 5_000
RATED_ROWS = 250_000
KEYS = 50
SPREAD_SECONDS = 3_600
RATED_SPREAD_SECONDS = 365 * 86_400
TICKS = os.sysconf("SC_CLK_TCK")


# -- what is there before -----------------------------------------------------------------------


def synthetic_record(rng: random.Random, models: list[str], started_at: datetime) -> dict[str, Any]:
    prompt, key_id = rng.randint(20, 8_000), rng.randint(1, KEYS)
    # Ids are time-ordered, as the gateway makes them.
    millis = int(started_at.timestamp() * 1_000)
    return {
        "id": uuid.UUID(int=millis << 80 | 7 << 76 | rng.getrandbits(76)).hex,
        "team_id": 1 + key_id % 5,
        "key_id": key_id,
        "member_id": key_id,
        "source": "api",
        "model": rng.choice(models),
        "endpoint": "chat",
        "stream": True,
        "upstream": "upstream",
        "status": 200,
        "outcome": "ok",
        "finish_reason": "stop",
        "prompt_tokens": prompt,
        "cached_tokens": rng.randint(0, prompt),
        "completion_tokens": rng.randint(1, 2_000),
        "usage": {"prompt_tokens": prompt},
        "started_at": started_at.strftime("%Y-%m-%d %H:%M:%S.%f"),
        "finished_at": (started_at + timedelta(seconds=2)).strftime("%Y-%m-%d %H:%M:%S.%f"),
    }


def insert(count: int, *, seed: int) -> None:
    """Waiting records of the last hour, in the order of their times."""
    rng = random.Random(seed)
    models = sorted(set(Rate.objects.filter(meter="input").values_list("model", flat=True)))
    begin = datetime.now(UTC) - timedelta(seconds=SPREAD_SECONDS + 1)
    for start in range(0, count, INSERT_ROWS):
        numbers = range(start, min(start + INSERT_ROWS, count))
        moments = (begin + timedelta(seconds=SPREAD_SECONDS * number / count) for number in numbers)
        rows = [synthetic_record(rng, models, moment) for moment in moments]
        with transaction.atomic():
            insert_json(UsageRecord, json.dumps(rows))


RATED = """
WITH made AS (
    INSERT INTO billing_usagerecord (
        id, team_id, key_id, member_id, model, endpoint, source, upstream, upstream_id, status, outcome, error_code,
        stream, finish_reason, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, image_tokens, pages,
        characters, usage, estimated, bytes_out, started_at, finished_at, rated_at, unpriced
    )
    SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3)
            || 'a' || substr(md5(n::text), 4, 15))::uuid,
        1 + n %% 5, 1 + n %% {keys}, 1 + n %% {keys}, 'model-' || n %% 16, 'chat', 'api', 'upstream', '', 200, 'ok', '',
        true, 'stop', 4000, 2000, 1000, 0, 0, 0, 0, '{{"prompt_tokens": 4000}}', false, 600, at, at, at, false
    FROM generate_series(%(first)s, %(last)s) n, LATERAL (
        SELECT now() - interval '1 day' - %(spread)s * interval '1 second' * (1 - n::float8 / %(of)s) AS at
    ) moment
    RETURNING id, started_at
), charged AS (
    INSERT INTO billing_charge (record_id, meter, units, price_ppt, amount_ppt, created_at)
    SELECT id, meter, 1000, 100000, 100000000, started_at
    FROM made, (VALUES ('cache_read'), ('input'), ('output')) meters(meter)
)
INSERT INTO billing_rollup (
    quarter_at, team_id, key_id, member_id, model, endpoint, source, requests, errors, amount_ppt, input_units,
    cache_read_units, output_units, page_units, character_units
)
SELECT to_timestamp(extract(epoch FROM started_at)::bigint / 900 * 900), 1, 1, 1, 'model', 'chat', 'api', count(*), 0,
    0, 0, 0, 0, 0, 0
FROM made GROUP BY 1
ON CONFLICT DO NOTHING
"""


def insert_rated(first: int, last: int, *, of: int) -> None:
    """Records number `first` to `last` of a year that has `of`, with their charges, in the order of their times."""
    for start in range(first, last + 1, RATED_ROWS):
        with connection.cursor() as cursor:
            cursor.execute(
                RATED.format(keys=KEYS),
                {"first": start, "last": min(start + RATED_ROWS - 1, last), "of": of, "spread": RATED_SPREAD_SECONDS},
            )
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE billing_usagerecord, billing_charge, billing_rollup")


# -- the measurement ----------------------------------------------------------------------------


def processor_seconds() -> float:
    """Of this process, and of the database's that serves it."""
    return time.process_time() + (_of_process(_backend()) if connection.vendor == "postgresql" else 0.0)


def _backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def _of_process(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(count: int, *, seed: int) -> dict[str, Any]:
    insert(count, seed=seed)
    waiting = UsageRecord.objects.filter(rated_at=None)
    assert waiting.count() == count, "the database was not empty"
    charges = Charge.objects.count()
    cpu, began = processor_seconds(), time.perf_counter()
    while rate_waiting(max_batches=50):
        pass
    seconds, cpu = time.perf_counter() - began, processor_seconds() - cpu
    assert not waiting.exists(), "not all records were rated"
    return {
        "database": connection.vendor,
        "records": count,
        "charges": Charge.objects.count() - charges,
        "seconds": seconds,
        "cpu_us": cpu / count * 1e6,
    }


def measure_workers(count: int, *, workers: int) -> dict[str, Any]:
    """So many processes rate what waits, beginning together."""
    insert(count, seed=Rate.objects.count() + UsageRecord.objects.count())
    command = [sys.executable, __file__, "--rate-only"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    raters = [subprocess.Popen(command, **pipes) for _ in range(workers)]
    for rater in raters:
        rater.stdout.readline()
    began = time.perf_counter()
    for rater in raters:
        rater.stdin.write("go\n")
        rater.stdin.flush()
    cpu = sum(float(rater.stdout.readline()) for rater in raters)
    seconds = time.perf_counter() - began
    for rater in raters:
        rater.communicate()
    assert not UsageRecord.objects.filter(rated_at=None).exists(), "not all records were rated"
    return {"database": connection.vendor, "records": count, "seconds": seconds, "cpu_us": cpu / count * 1e6}


def rate_what_waits() -> None:
    """When told, until nothing waits; prints the processor seconds it took."""
    UsageRecord.objects.exists()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = processor_seconds()
    while rate_waiting(max_batches=50):
        pass
    print(processor_seconds() - cpu, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rated", type=int, nargs="+", metavar="N", help="rows rated before, ascending")
    parser.add_argument("--workers", type=int, help="processes that rate together (PostgreSQL alone)")
    parser.add_argument("--rate-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rate_only:
        rate_what_waits()
        return
    call_command("migrate", verbosity=0)
    call_command("load_rates", stdout=StringIO())
    if options.workers:
        print(json.dumps(measure_workers(options.records, workers=options.workers)))
        return
    if not options.rated:
        print(json.dumps(measure(options.records, seed=1)))
        return
    if connection.vendor != "postgresql":
        parser.error("--rated needs PostgreSQL")
    there = 0
    for seed, rated in enumerate(sorted(options.rated), 1):
        if rated > there:
            insert_rated(there + 1, rated, of=max(options.rated))
            there = rated
        print(json.dumps({"rated": rated, **measure(options.records, seed=seed)}))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
