"""Measure the gateway beside the direct way, nginx and others; prints the tables of docs/performance.md.

    uv run bench/run.py                  # three interleaved rounds, and what grows: about forty minutes
    uv run bench/run.py --quick          # one short round, a minute or two: a look, not a measurement
    uv run bench/run.py --only gateway webs                     # parts of it, see --help
    uv run bench/run.py --litellm PROGRAM --router PROGRAM     # LiteLLM's proxy and vLLM's router as columns
    uv run bench/run.py --write          # and puts the tables into docs/performance.md

Everything listens on loopback, lives in a temporary folder and ends with the command, Ctrl-C included. A C compiler
is needed; nginx, PostgreSQL and Redis are measured where they are installed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from gateway_process import Gateway, gateway, product_environment
from growth import MEASUREMENTS, at_scale, measure_growth
from peers import Programs, peers
from programs import BENCH, BUILD, ROOT, BenchError, find_postgresql, mock_upstream, postgresql, wait_until_quiet
from report import Results, machine, markdown, progress, round_summary, write_page
from workloads import DIRECT, GATEWAY, SCALED, WARM_UP, Round, Run, Target, open_streams, workloads

PROMPT_TOKENS = 112  # what the mock upstream says of every request
RATED_RECORDS, RATED_RECORDS_QUICK = 50_000, 10_000
RATING_SECONDS = 300
SETTLE_SECONDS = 60.0
PARTS = ("gateway", "rating", *MEASUREMENTS)


class Account:
    """What the generator saw of its requests to the gateway, to be compared with the usage records."""

    def __init__(self) -> None:
        self.finished = self.begun = self.unsure = 0

    def add(self, run: Run) -> Run:
        if run["failed"]:
            raise BenchError(f"{run['failed']:,} requests to the gateway failed, the first with: {run['first_error']}")
        self.finished += run["finished"]
        self.begun += run["in_flight_begun"]
        # No byte of an answer came: the request may not have been read, let alone accepted.
        self.unsure += run["in_flight"] - run["in_flight_begun"]
        return run

    def verdict(self, measured: Gateway, *, name: str) -> str:
        """Whether each request became exactly one usage record. Raises BenchError where it did not."""
        expected = self.finished + self.begun
        records = measured.wait_for_records(expected, seconds=SETTLE_SECONDS)
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(records.by_outcome.items()))
        if not expected <= records.count <= expected + self.unsure:
            raise BenchError(f"{expected:,} requests (and {self.unsure} unsure) became {records.count:,}: {outcomes}")
        if not self.unsure and records.prompt_tokens != expected * PROMPT_TOKENS:
            raise BenchError(f"{expected:,} requests have {records.prompt_tokens:,} prompt tokens: {outcomes}")
        unsure = f" (of {self.unsure} more no byte had come back)" if self.unsure else ""
        return (
            f"Of {expected:,} requests to the {name}, {self.begun:,} were cut off by their client; each became one "
            f"usage record ({outcomes}){unsure}."
        )


def measure_gateway(results: Results, *, rounds: int, programs: Programs) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="token-factory-bench-") as name,
        mock_upstream(Path(name)) as port,
        gateways(Path(name), upstream_port=port) as ours,
        peers(Path(name), programs, upstream_port=port) as others,
    ):
        accounts = {target: Account() for target in ours}
        own = [Target(target, one.port, one.key, (one.pid,)) for target, one in ours.items()]
        for target in own:
            results.memory_mb[target.name] = _memory_mb(target, accounts[target.name], quick=results.quick)
        wait_until_quiet(port)
        targets = [Target(DIRECT, port), *others, *own]
        results.targets = [target.name for target in targets]
        for number in range(rounds):
            results.rounds.append(_round(targets, accounts, quick=results.quick))
            progress(f"round {number + 1} of {rounds}: {round_summary(results.rounds[-1], results.targets)}")
        results.records = "\n\n".join(accounts[target].verdict(one, name=target) for target, one in ours.items())


@contextmanager
def gateways(folder: Path, *, upstream_port: int) -> Iterator[dict[str, Gateway]]:
    """One web process embedded, and one of an installation on PostgreSQL and Redis, where these are."""
    url = f"http://127.0.0.1:{upstream_port}/v1"
    # PostgreSQL, which runs as a user of its own, has to reach its folder in here.
    folder.chmod(0o711)
    with ExitStack() as started:
        made = {}
        for name in (GATEWAY, SCALED):
            own = folder / name.replace(" ", "-")
            own.mkdir(mode=0o711)
            if name == GATEWAY:
                made[name] = started.enter_context(gateway(own, upstream_url=url))
            elif find_postgresql() and shutil.which("redis-server"):
                variables = started.enter_context(at_scale(own))
                made[name] = started.enter_context(gateway(own, upstream_url=url, **variables))
        yield made


def _memory_mb(ours: Target, account: Account, *, quick: bool) -> float:
    """What 1,000 open streams add to a process that has served and is quiet."""
    account.add(ours.measure(WARM_UP))
    run = account.add(ours.measure(open_streams(quick=quick)))
    process = run["processes"][0]
    added_mb: float = (process["rss_top_kb"] - process["rss_start_kb"]) / 1024
    open_streams_now: int = run["in_flight_begun"]
    return added_mb * 1000 / max(1, open_streams_now)


def _round(targets: Sequence[Target], accounts: Mapping[str, Account], *, quick: bool) -> Round:
    done: dict[str, dict[str, Run]] = {}
    for workload in workloads(quick=quick):
        for target in targets:
            account = accounts.get(target.name)
            if workload.connections > target.max_connections or (quick and workload.pace_us and not account):
                continue
            run = target.measure(workload)
            done.setdefault(workload.name, {})[target.name] = account.add(run) if account else run
    return done


def measure_rating(results: Results) -> None:
    count = RATED_RECORDS_QUICK if results.quick else RATED_RECORDS
    if not (results.quick and find_postgresql()):
        with tempfile.TemporaryDirectory(prefix="token-factory-bench-") as name:
            results.rating.append(_rate(Path(name), count, name="SQLite"))
        progress("rated on SQLite")
    if find_postgresql() is None:
        progress("PostgreSQL is not installed: no row of it")
        return
    with tempfile.TemporaryDirectory(prefix="token-factory-bench-") as name, postgresql(Path(name)) as url:
        results.rating.append(_rate(Path(name), count, name="PostgreSQL", DATABASE_URL=url))
        progress("rated on PostgreSQL")


def _rate(folder: Path, count: int, *, name: str, **variables: str) -> dict[str, Any]:
    command: list[str | Path] = [sys.executable, BENCH / "rating_speed.py", "--records", str(count)]
    environment = product_environment(folder, **variables)
    done = subprocess.run(
        command, env=environment, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=RATING_SECONDS
    )
    return {"name": name, **json.loads(done.stdout)}


def _keep(results: Results) -> Path:
    """The raw figures, for whoever wants more than the table."""
    BUILD.mkdir(exist_ok=True)
    file = BUILD / "results.json"
    raw = {"machine": results.machine, "memory_mb": results.memory_mb, "rating": results.rating}
    grown = {growth.what: dict.fromkeys(["sizes"], growth.sizes) | growth.rows for growth in results.growth}
    file.write_text(json.dumps(raw | {"rounds": results.rounds, "growth": grown}, indent=1))
    return file


def measure(results: Results, options: argparse.Namespace) -> None:
    """The parts that are asked for."""
    if "gateway" in options.only:
        programs = Programs(options.litellm, options.router)
        measure_gateway(results, rounds=1 if options.quick else options.rounds, programs=programs)
    if "rating" in options.only:
        measure_rating(results)
    for name in MEASUREMENTS:
        if name in options.only and (found := measure_growth(name, quick=options.quick)):
            results.growth.append(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 11), metavar="1-10")
    parser.add_argument("--quick", action="store_true", help="one short round: a look, not a measurement")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help=", ".join(PARTS), metavar="PART")
    parser.add_argument("--litellm", metavar="PROGRAM", default="", help="LiteLLM's proxy too, e.g. .../bin/litellm")
    parser.add_argument("--router", metavar="PROGRAM", default="", help="vLLM's router too, e.g. .../bin/vllm-router")
    options = parser.parse_args()
    if options.write and set(options.only) < set(PARTS):
        parser.error("--write needs all parts")
    for number in (signal.SIGINT, signal.SIGTERM):
        # Said explicitly: a shell's background jobs begin with SIGINT ignored.
        signal.signal(number, signal.default_int_handler)
    results = Results(quick=options.quick, targets=[], machine=machine())
    try:
        measure(results, options)
    except KeyboardInterrupt:
        progress("interrupted")
        return 130
    except (BenchError, subprocess.SubprocessError) as error:
        progress(f"bench: {error}")
        return 1
    text = markdown(results)
    print(text)
    progress(f"raw figures: {_keep(results).relative_to(ROOT)}")
    if options.write:
        write_page(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
