"""A whole installation at scale on loopback, each process by name: two web processes, two workers, beat, PostgreSQL,
Redis, two model servers. Every process can be killed, stopped for a while and started again; only these are."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
from gateway_process import LIMITS, product_environment, set_up
from odd_servers import OddServers
from programs import (
    ROOT,
    BenchError,
    Cluster,
    accepts,
    compiled,
    free_port,
    get,
    new_cluster,
    preloadable,
    redis_command,
    running,
    stop,
    wait_until,
)

WEBS = ("web-1", "web-2")
WORKERS = ("worker-1", "worker-2")
MOCKS = ("mock-1", "mock-2")
REQUEST_TIMEOUT_SECONDS = 20
SETTLE_SECONDS = 120.0
CELERY = ("-m", "celery", "-A", "config.celery:app", "--quiet")
WORKER = ("worker", "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat")
# In the journal's file names, whose process it is.
SEGMENTS = "*-{pid}-*.journal"
UPSTREAM = '[[upstream]]\nname = "{name}"\nbase_url = "{url}"\nmodels = ["{model}"]\n'


class Installation:
    def __init__(self, folder: Path, cluster: Cluster, odd: OddServers) -> None:
        self.folder = folder
        self.cluster = cluster
        self.odd = odd
        self.ports = {name: free_port() for name in (*WEBS, *MOCKS, "redis")}
        self.key = ""
        self._clock = folder / "clock"
        self._running: dict[str, tuple[ExitStack, subprocess.Popen[bytes]]] = {}
        self.set_clock(0.0)
        self._environment = self._make_environment()

    def _make_environment(self) -> dict[str, str]:
        file = self.folder / "upstreams.toml"
        urls = [(name, f"http://127.0.0.1:{self.ports[name]}/v1", "bench-model") for name in MOCKS]
        urls += [(model, url, model) for model, url in self.odd.urls.items()]
        file.write_text("\n".join(UPSTREAM.format(name=name, url=url, model=model) for name, url, model in urls))
        return product_environment(
            self.folder,
            DATABASE_URL=self.cluster.url,
            REDIS_URL=f"redis://127.0.0.1:{self.ports['redis']}/0",
            UPSTREAMS_FILE=str(file),
            REQUEST_TIMEOUT_SECONDS=str(REQUEST_TIMEOUT_SECONDS),
            LD_PRELOAD=str(preloadable("clock")),
            BENCH_CLOCK_FILE=str(self._clock),
            # The one certificate authority that the gateway trusts.
            SSL_CERT_FILE=str(self.odd.authority),
            **LIMITS,
        )

    # -- processes ----------------------------------------------------------------------------

    def start_all(self) -> None:
        for name in ("postgresql", "redis", *MOCKS):
            self.start(name)
        self.key = set_up(self._environment)
        for name in (*WORKERS, "beat", *WEBS):
            self.start(name)

    def start(self, name: str, *, wait: bool = True) -> None:
        stack, log = ExitStack(), self.folder / f"{name}.log"
        command, options = self._command(name)
        process = stack.enter_context(running(command, log=log, **options))
        self._running[name] = (stack, process)
        answers = self._answers(name)
        if wait and answers:
            wait_until(answers, what=name, process=process, log=log)

    def _command(self, name: str) -> tuple[Sequence[str | Path], dict[str, Any]]:
        python, ours = sys.executable, {"environment": self._environment}
        match name.partition("-")[0]:
            case "postgresql":
                return self.cluster.command, {"user": self.cluster.user}
            case "redis":
                return redis_command(self.folder, self.ports["redis"]), {}
            case "mock":
                return [compiled("mock"), "--port", str(self.ports[name])], {}
            case "worker":
                return [python, *CELERY, *WORKER, "-n", f"{name}@%h"], ours
            case "beat":
                return [python, *CELERY, "beat", "--loglevel", "WARNING", "--pidfile="], ours
        return [python, "-m", "config.server", "--port", str(self.ports[name])], ours

    def _answers(self, name: str) -> Callable[[], bool] | None:
        if name == "postgresql":
            return self.cluster.answers
        if name in WEBS:
            return lambda: get(self.ports[name], "/healthz") is not None
        return (lambda: accepts(self.ports[name])) if name in self.ports else None

    def pid(self, name: str) -> int:
        return self._running[name][1].pid

    def kill(self, *names: str) -> None:
        for name in names:
            stack, process = self._running.pop(name)
            process.kill()
            process.wait()
            stack.close()

    def kill_postgresql(self) -> None:
        """The server's own process, without a word to those that serve its connections; until they have noticed."""
        pids = self.postgresql_pids()
        self.kill("postgresql")
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)

    def restart(self, name: str) -> None:
        """SIGTERM, to its end, and anew."""
        stack, process = self._running.pop(name)
        stop(process)
        stack.close()
        self.start(name)

    def postgresql_pids(self) -> list[int]:
        server = self.pid("postgresql")
        return [server, *(pid for pid, parent in _parents() if parent == server)]

    @contextmanager
    def stopped(self, *pids: int) -> Iterator[None]:
        """They hold their sockets and say nothing."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in reversed(pids):
                os.kill(pid, signal.SIGCONT)

    def set_clock(self, seconds: float) -> None:
        """How far the product's clocks are from the machine's."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack("d", seconds))

    def stop(self) -> None:
        order = [*WEBS, *WORKERS, "beat", *MOCKS, "redis", "postgresql"]
        for name in sorted(self._running, key=order.index):
            self._running.pop(name)[0].close()

    # -- what is known of it ------------------------------------------------------------------

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.cluster.url, connect_timeout=3) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()

    def unknown(self, ids: set[str], *, and_unrated: bool = False) -> set[str]:
        """Those of the requests that the ledger does not have (or has not rated)."""
        rated = "rated_at is not null and" if and_unrated else ""
        statement = f"select id from billing_usagerecord where {rated} id = any(%s::uuid[])"  # noqa: S608 -- a constant
        return ids - {row[0].hex for row in self.rows(statement, list(ids))}

    def segments(self, name: str) -> list[Path]:
        """The journal of a web process, oldest first."""
        found = (self.folder / "var" / "journal").glob(SEGMENTS.format(pid=self.pid(name)))
        return sorted(found, key=lambda path: path.name)

    def wait_until_rated(self) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while self.rows("select count(*) from billing_usagerecord where rated_at is null") != [(0,)]:
            if time.monotonic() > deadline:
                raise BenchError("records still wait to be rated")
            time.sleep(0.5)

    def reconcile(self) -> str:
        """Its last line."""
        command = [sys.executable, "manage.py", "reconcile"]
        done = subprocess.run(command, env=self._environment, cwd=ROOT, check=False, capture_output=True, text=True)
        return done.stdout.strip().rpartition("\n")[2]


def _parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent's id."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(folder.name), int(fields[1])


@contextmanager
def installation(folder: Path) -> Iterator[Installation]:
    with OddServers(folder) as odd:
        made = Installation(folder, new_cluster(folder), odd)
        try:
            made.start_all()
            yield made
        finally:
            made.stop()
