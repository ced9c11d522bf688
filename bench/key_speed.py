"""How long a key takes among many: fills the configured PostgreSQL with keys and asks the gateway with some of them.

uv run bench/key_speed.py --keys 1000000 --port 8001        # prints one JSON object
"""

from __future__ import annotations

import argparse
import http.client
import json
import secrets
import time
from statistics import median

# ruff: noqa: E402 -- Django is set up before models are imported
import product

product.set_up()

from django.db import connection

from accounts.keys import digest_of
from accounts.models import ApiKey, Team

ASKED = 300
# Refused as soon as the key is known: nothing but the key is measured.
REQUEST = b'{"model": "none", "messages": []}'
FILL = """
INSERT INTO accounts_apikey (
    team_id, name, digest, prefix, last_four, created_at, endpoints, networks, models, portable
)
SELECT %s, 'key ' || n, encode(sha256(('bench ' || n)::bytea), 'hex'), 'rc-bench', 'last', now(), '[]', '[]', '[]',
    false
FROM generate_series(%s, %s) n
"""


def fill(count: int, team: Team) -> None:
    """Up to so many keys that nobody asks with."""
    there = ApiKey.objects.count()
    with connection.cursor() as cursor:
        cursor.execute(FILL, [team.pk, there + 1, count])
        cursor.execute("VACUUM ANALYZE accounts_apikey")


def new_secrets(team: Team) -> list[str]:
    made = [f"rc-{secrets.token_hex(24)}" for _ in range(ASKED)]
    ApiKey.objects.bulk_create(
        ApiKey(team=team, name="asked", digest=digest_of(secret), prefix=secret[:7], last_four=secret[-4:])
        for secret in made
    )
    return made


def milliseconds(gateway: http.client.HTTPConnection, secret: str, *, status: int) -> float:
    began = time.perf_counter()
    gateway.request("POST", "/v1/chat/completions", REQUEST, {"authorization": f"Bearer {secret}"})
    response = gateway.getresponse()
    response.read()
    assert response.status == status, response.status
    return (time.perf_counter() - began) * 1_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    team = Team.objects.order_by("pk")[0]
    fill(options.keys, team)
    known, unknown = new_secrets(team), [f"rc-{secrets.token_hex(24)}" for _ in range(ASKED)]
    gateway = http.client.HTTPConnection("127.0.0.1", options.port, timeout=30)
    cold = [milliseconds(gateway, secret, status=400) for secret in known]
    warm = [milliseconds(gateway, secret, status=400) for secret in known]
    wrong = [milliseconds(gateway, secret, status=401) for secret in unknown]
    rows = {"cold": cold, "warm": warm, "unknown": wrong}
    print(json.dumps({f"{name}, p50 ms": f"{median(taken):.2f}" for name, taken in rows.items()}))


if __name__ == "__main__":
    main()
