"""How fast one process rates: puts usage records into the configured, empty database and times `billing.rating`.

    python bench/rating_speed.py --records 50000        # prints one JSON object

Rating is what the Celery worker's task calls in a loop, one transaction a batch.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

# ruff: noqa: E402 -- Django is set up before models are imported
import django

django.setup()

from django.core.management import call_command
from django.db import connection, transaction

from billing.bulk import insert_json
from billing.models import Charge, Rate, UsageRecord
from billing.rating import rate_waiting

INSERT_ROWS = 5_000
KEYS = 50
SPREAD_SECONDS = 3_600


def synthetic_record(rng: random.Random, models: list[str], now: datetime) -> dict[str, Any]:
    started_at = now - timedelta(seconds=rng.uniform(1, SPREAD_SECONDS))
    prompt, key_id = rng.randint(20, 8_000), rng.randint(1, KEYS)
    return {
        "id": uuid.UUID(int=rng.getrandbits(128)).hex,
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


def insert(count: int) -> None:
    rng = random.Random(1)
    models = sorted(set(Rate.objects.filter(meter="input").values_list("model", flat=True)))
    now = datetime.now(UTC)
    for start in range(0, count, INSERT_ROWS):
        rows = [synthetic_record(rng, models, now) for _ in range(min(INSERT_ROWS, count - start))]
        with transaction.atomic():
            insert_json(UsageRecord, json.dumps(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    count = parser.parse_args().records
    call_command("migrate", verbosity=0)
    call_command("load_rates", stdout=StringIO())
    insert(count)
    started = time.perf_counter()
    while rate_waiting(max_batches=50):
        pass
    seconds = time.perf_counter() - started
    rated = UsageRecord.objects.exclude(rated_at=None).count()
    assert rated == count, f"{rated} of {count} records were rated"
    charges = Charge.objects.count()
    print(json.dumps({"database": connection.vendor, "records": rated, "charges": charges, "seconds": seconds}))


if __name__ == "__main__":
    main()
