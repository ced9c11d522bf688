"""What the database does itself (locks, conflicts, sums, time zones) is tested on PostgreSQL as on SQLite."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.forked import ROOT
from tests.installation import PRODUCT_VARIABLES
from tests.services import postgresql_server

SUITES = [
    "billing/test_bulk.py",
    "billing/test_shipping.py",
    "billing/test_rating.py",
    "billing/test_quota.py",
    "billing/test_reports.py",
    "billing/test_day_sums.py::test_of_a_busy_day_the_hours_so_far_are_summed",
    "billing/test_snapshots.py",
    "billing/test_ledger_commands.py",
    "billing/test_counters.py",
    "accounts/test_races.py",
    "accounts/test_audit.py",
]


def test_ledger_teams_and_audit_log_on_postgresql() -> None:
    if os.environ.get("DATABASE_URL"):
        pytest.skip("this is that run")
    inherited = {name: value for name, value in os.environ.items() if name not in PRODUCT_VARIABLES}
    # The cluster is thrown away; dropping the database first would wait for the pool's connections.
    with postgresql_server() as url:
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--reuse-db",
                *(f"tests/{name}" for name in SUITES),
            ],
            env=inherited | {"DATABASE_URL": url},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stdout[-4000:]
    assert " passed" in run.stdout
