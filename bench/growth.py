"""What each thing costs as there is more of it: streams, keys, records, web processes, workers."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gateway_process import Gateway, gateway, one_more, product_environment
from programs import BENCH, ROOT, find_postgresql, mock_upstream, postgresql, redis
from report import progress
from workloads import GATEWAY, PACE_US, Run, Target, Workload

STREAMS, STREAMS_QUICK = (1, 10, 100, 250, 500, 1_000), (1, 100)
KEYS, KEYS_QUICK = (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000)
RECORDS, RECORDS_QUICK = (0, 1_000_000, 10_000_000), (0, 100_000)
WEBS, WEBS_QUICK = (1, 2, 3), (1, 2)
WORKERS, WORKERS_QUICK = (1, 2, 3, 4), (1, 2)
# Rated at each size, and by all workers together.
RATED_RECORDS, RATED_RECORDS_QUICK = 100_000, 10_000
HOURS = 4 * 3600


@dataclass(frozen=True, slots=True)
class Growth:
    """A table: what grows in the columns, what it costs in the rows."""

    what: str
    sizes: tuple[int, ...]
    rows: dict[str, list[str]]
    said: str

    def markdown(self) -> str:
        head = [self.what, *(f"{size:,}" for size in self.sizes)]
        lines = [head, ["---", *["---:"] * len(self.sizes)], *([name, *values] for name, values in self.rows.items())]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{table}\n\n{self.said}"


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="token-factory-bench-") as name:
        yield Path(name)


@contextmanager
def at_scale(folder: Path) -> Iterator[dict[str, str]]:
    """PostgreSQL and Redis; the variables that name them."""
    with postgresql(folder) as database_url, redis(folder) as redis_url:
        yield {"DATABASE_URL": database_url, "REDIS_URL": redis_url}


# -- streams -----------------------------------------------------------------------------------


def of_streams(*, quick: bool) -> Growth:
    sizes = STREAMS_QUICK if quick else STREAMS
    columns = []
    with (
        _folder() as folder,
        mock_upstream(folder) as port,
        gateway(folder, upstream_url=f"http://127.0.0.1:{port}/v1") as measured,
    ):
        target = Target(GATEWAY, measured.port, measured.key, (measured.pid,))
        target.measure(Workload("warm-up", 8, 0.5, 0.0, chunks=10))
        for size in sizes:
            columns.append(_paced(target, size, quick=quick))
            progress(f"{size} streams: {columns[-1]}")
    said = "Streams of one chunk every 50 ms through one web process on SQLite."
    return Growth("streams", sizes, _by_row(columns), said)


def _paced(target: Target, streams: int, *, quick: bool) -> dict[str, str]:
    seconds, ramp = (1.0, 1.0) if quick else (5.0, 3.0)
    run = target.measure(Workload("paced", streams, seconds, 1.0, ramp, chunks=100, pace_us=PACE_US))
    process = run["processes"][0]
    chunks = run["chunks_per_second"] * run["seconds"]
    return {
        "lag p50, ms": f"{run['lag_us']['p50'] / 1000:.1f}",
        "lag p99, ms": f"{run['lag_us']['p99'] / 1000:.1f}",
        "CPU a chunk, µs": f"{process['cpu_seconds'] * 1e6 / chunks:.0f}" if chunks else "–",
        "CPU of the process, %": f"{process['cpu_seconds'] / run['seconds'] * 100:.0f}",
        "stalled": str(run["stalled"]),
    }


# -- keys --------------------------------------------------------------------------------------


def of_keys(*, quick: bool) -> Growth:
    sizes = KEYS_QUICK if quick else KEYS
    with _folder() as folder, mock_upstream(folder) as port, at_scale(folder) as variables:
        # Each unknown key is to be looked up, not refused for being the sixty-first.
        unlimited = variables | {"RATE_LIMIT_WRONG_KEY_RPM": "0"}
        with gateway(folder, upstream_url=f"http://127.0.0.1:{port}/v1", **unlimited) as measured:
            environment = product_environment(folder, **variables)
            columns = []
            for size in sizes:
                command: list[str | Path] = [sys.executable, BENCH / "key_speed.py"]
                arguments = ["--keys", str(size), "--port", str(measured.port)]
                columns.append(_json_of([*command, *arguments], environment))
                progress(f"{size:,} keys: {columns[-1]}")
    said = (
        "A call that is refused for its model once its key is known, one at a time on a kept connection, PostgreSQL and"
        " Redis. *Cold* is a key that the process has not seen (looked up in the database), *warm* the same key again,"
        " *unknown* one that nobody has."
    )
    return Growth("keys", sizes, _by_row(columns), said)


# -- records -----------------------------------------------------------------------------------


def of_records(*, quick: bool) -> Growth:
    sizes = RECORDS_QUICK if quick else RECORDS
    count = RATED_RECORDS_QUICK if quick else RATED_RECORDS
    with _folder() as folder, postgresql(folder) as url:
        command: list[str | Path] = [sys.executable, BENCH / "rating_speed.py", "--records", str(count), "--rated"]
        done = subprocess.run(
            [*command, *map(str, sizes)],
            env=product_environment(folder, DATABASE_URL=url),
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
            timeout=HOURS,
        )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    rows = {
        "records/s": [f"{one['records'] / one['seconds']:,.0f}" for one in found],
        "CPU a record, µs": [f"{one['cpu_us']:.0f}" for one in found],
    }
    said = (
        f"{count:,} records rated by one process when so many were rated before, PostgreSQL. Ten million records and"
        " their charges are 8 GB; a hundred million need 80 GB of disk and most of a day to be made:"
        " `bench/rating_speed.py --rated 0 100000000`."
    )
    return Growth("rated before", sizes, rows, said)


# -- web processes -----------------------------------------------------------------------------


def of_webs(*, quick: bool) -> Growth:
    sizes = WEBS_QUICK if quick else WEBS
    columns = []
    with _folder() as folder, mock_upstream(folder) as port, at_scale(folder) as variables, ExitStack() as started:
        first = started.enter_context(gateway(folder, upstream_url=f"http://127.0.0.1:{port}/v1", **variables))
        measured = [first]
        for size in sizes:
            while len(measured) < size:
                measured.append(started.enter_context(one_more(first, folder, number=len(measured))))
            columns.append(_together(measured, quick=quick))
            progress(f"{size} web processes: {columns[-1]}")
    said = (
        "Whole answers, 64 in flight at each process, PostgreSQL and Redis, all on the machine named above: where its"
        " cores are busy more processes share them, and the processor time of a request tells what the sharing costs."
    )
    return Growth("web processes", sizes, _by_row(columns), said)


def _together(measured: Sequence[Gateway], *, quick: bool) -> dict[str, str]:
    seconds, warm_up = (1.0, 0.5) if quick else (5.0, 1.5)
    workload = Workload("whole, 64", 64, seconds, warm_up)

    def measure(one: Gateway) -> Run:
        return Target(GATEWAY, one.port, one.key, (one.pid,)).measure(workload)

    with ThreadPoolExecutor(len(measured)) as pool:
        runs = list(pool.map(measure, measured))
    requests = sum(run["requests_per_second"] * run["seconds"] for run in runs)
    cpu_seconds = sum(run["processes"][0]["cpu_seconds"] for run in runs)
    return {
        "requests/s": f"{sum(run['requests_per_second'] for run in runs):,.0f}",
        "CPU a request in the web processes, µs": f"{cpu_seconds * 1e6 / requests:.0f}",
        "latency p50, ms": f"{median(run['latency_us']['p50'] for run in runs) / 1000:.1f}",
        "failed": str(sum(run["failed"] for run in runs)),
    }


# -- workers -----------------------------------------------------------------------------------


def of_workers(*, quick: bool) -> Growth:
    sizes = WORKERS_QUICK if quick else WORKERS
    count = RATED_RECORDS_QUICK if quick else RATED_RECORDS
    columns = []
    with _folder() as folder, postgresql(folder) as url:
        environment = product_environment(folder, DATABASE_URL=url)
        for size in sizes:
            command = [sys.executable, str(BENCH / "rating_speed.py"), "--records", str(count), "--workers", str(size)]
            found = _json_of(command, environment)
            columns.append(
                {
                    "records/s": f"{found['records'] / found['seconds']:,.0f}",
                    "CPU a record, µs": f"{found['cpu_us']:.0f}",
                }
            )
            progress(f"{size} workers: {columns[-1]}")
    said = f"{count:,} waiting records rated by so many processes at once on one PostgreSQL."
    return Growth("workers", sizes, _by_row(columns), said)


# -- all ---------------------------------------------------------------------------------------


def _by_row(columns: Sequence[dict[str, str]]) -> dict[str, list[str]]:
    return {name: [column[name] for column in columns] for name in columns[0]}


def _json_of(command: Sequence[str | Path], environment: dict[str, str]) -> Any:
    done = subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=HOURS)
    return json.loads(done.stdout)


NEED_POSTGRESQL = frozenset({"keys", "records", "webs", "workers"})
MEASUREMENTS: dict[str, Callable[..., Growth]] = {
    "streams": of_streams,
    "keys": of_keys,
    "records": of_records,
    "webs": of_webs,
    "workers": of_workers,
}


def measure_growth(name: str, *, quick: bool) -> Growth | None:
    """None where what it needs is not installed."""
    if name in NEED_POSTGRESQL and find_postgresql() is None:
        progress(f"PostgreSQL is not installed: nothing about {name}")
        return None
    began = time.monotonic()
    found = MEASUREMENTS[name](quick=quick)
    progress(f"{name}: {time.monotonic() - began:.0f} s")
    return found
