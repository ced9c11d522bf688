"""An installation of its own in a folder, with one web process (or more): the gateway as it is measured."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from programs import ROOT, get, running, wait_until

BACKLOG = 2048
# What decides how the product runs; left out so that the measured one is the embedded default.
PRODUCT_VARIABLES = frozenset({"DATA_DIR", "DATABASE_URL", "REDIS_URL", "UPSTREAMS_FILE", "DEMO_URL"})
# Every gate is on and counts, at limits that are never reached.
LIMITS = {
    "RATE_LIMIT_KEY_RPM": "1000000000",
    "RATE_LIMIT_IP_RPM": "1000000000",
    "RATE_LIMIT_TEAM_RPM": "1000000000",
    "RATE_LIMIT_KEY_CONCURRENCY": "1000000",
    "RATE_LIMIT_PROCESS_CONCURRENCY": "1000000",
    "RATE_LIMIT_SITE_CONCURRENCY": "1000000",
    "TEAM_POINTS_LIMIT": "1000000",
}
SET_UP = """
import datetime
import json
from io import StringIO
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
call_command("load_rates", stdout=StringIO())
from billing.models import Rate
began = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
for meter in ("input", "cache_read", "output"):
    Rate(model="bench-model", meter=meter, rate="0.5", effective_from=began).save()
from accounts.bootstrap import first_owner
print(json.dumps({"key": first_owner().secret}))
"""


def product_environment(folder: Path, **variables: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in PRODUCT_VARIABLES}
    # Several processes start one after another: bytecode is worth keeping.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    own = {"DJANGO_SETTINGS_MODULE": "config.settings", "DATA_DIR": str(folder / "var"), "PYTHONPATH": str(ROOT)}
    return inherited | own | variables


@dataclass(frozen=True, slots=True)
class Gateway:
    port: int
    pid: int
    key: str
    environment: dict[str, str]

    def usage_records(self) -> Records:
        with closing(self._database()) as database:
            rows = database.execute(
                "SELECT outcome, count(*), sum(prompt_tokens) FROM billing_usagerecord GROUP BY outcome"
            ).fetchall()
        return Records({outcome: count for outcome, count, _ in rows}, sum(int(tokens) for _, _, tokens in rows))

    def _database(self) -> Any:
        if url := self.environment.get("DATABASE_URL"):
            return psycopg.connect(url, autocommit=True)
        file = Path(self.environment["DATA_DIR"]) / "token-factory.sqlite3"
        return sqlite3.connect(f"file:{file}?mode=ro", uri=True)

    def wait_for_records(self, expected: int, *, seconds: float) -> Records:
        """The records once there are as many as expected and no more come, or when time is up."""
        deadline = time.monotonic() + seconds
        records = self.usage_records()
        while records.count < expected and time.monotonic() < deadline:
            time.sleep(0.2)
            records = self.usage_records()
        time.sleep(1.0)
        return self.usage_records()


@dataclass(frozen=True, slots=True)
class Records:
    by_outcome: dict[str, int]
    prompt_tokens: int

    @property
    def count(self) -> int:
        return sum(self.by_outcome.values())


def set_up(environment: dict[str, str]) -> str:
    """Make database, rate card, owner and key; the key."""
    command = [sys.executable, "-c", SET_UP]
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    key: str = json.loads(done.stdout)["key"]
    return key


@contextmanager
def gateway(folder: Path, *, upstream_url: str, **variables: str) -> Iterator[Gateway]:
    """One web process with journal, shipper and records on, before the given upstream; on SQLite where no variable
    names another database."""
    environment = product_environment(folder, UPSTREAM_URL=upstream_url, **LIMITS, **variables)
    with _serving(environment, set_up(environment), log=folder / "web.log") as made:
        yield made


@contextmanager
def one_more(first: Gateway, folder: Path, *, number: int) -> Iterator[Gateway]:
    """Another web process of the same installation."""
    with _serving(first.environment, first.key, log=folder / f"web-{number}.log") as made:
        yield made


@contextmanager
def _serving(environment: dict[str, str], key: str, *, log: Path) -> Iterator[Gateway]:
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listener:
        fd, port = listener.fileno(), listener.getsockname()[1]
        command = [sys.executable, "-m", "config.server", "--fd", str(fd)]
        with running(command, log=log, environment=environment, descriptors=[fd]) as process:
            wait_until(
                lambda: get(port, "/v1/models", key=key) is not None, what="the gateway", process=process, log=log
            )
            yield Gateway(port, process.pid, key, environment)
