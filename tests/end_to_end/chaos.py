"""An installation of three web processes and two workers on PostgreSQL and Redis, and the ways to hurt it."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import celery
import httpx
import psycopg
import redis

from billing.journal import parse_lines
from gateway.key_epochs import PAUSE_SECONDS, REDIS_TIMEOUT_SECONDS
from tests.forked import ForkedProcess
from tests.installation import Installation, WebProcess, installation
from tests.services import free_port, postgresql_server, redis_server, wait_until

NO_LIMITS = {
    "RATE_LIMIT_KEY_RPM": "0",
    "RATE_LIMIT_IP_RPM": "0",
    "RATE_LIMIT_KEY_CONCURRENCY": "0",
    "TEAM_POINTS_LIMIT": "0",
}


# Counters are brought to the ledger every other second instead of twice a minute: a run is over before that.
PRELUDE = "import django\ndjango.setup()\nfrom gateway import admission\nadmission.CORRECT_EVERY_SECONDS = 2.0"


class Site:
    """What runs, and what can be done to it; each fault leaves everything running again."""

    def __init__(
        self, installed: Installation, folder: Path, *, database_url: str, redis_port: int, away_seconds: float
    ) -> None:
        self.installed = installed
        self.database_url = database_url
        self.away_seconds = away_seconds
        # When the database was closed to everybody, by the monotonic clock.
        self.closures: list[tuple[float, float]] = []
        self.webs: list[WebProcess] = []
        self.workers: list[ForkedProcess] = []
        self._folder = folder
        self._redis_port = redis_port
        self._redis = ExitStack()
        self.start_redis()

    @property
    def redis_url(self) -> str:
        return f"redis://127.0.0.1:{self._redis_port}/0"

    def start_web(self) -> None:
        # It has to share the machine with all the traffic.
        self.webs.append(self.installed.start_web(prelude=PRELUDE, seconds=120))

    def start_redis(self) -> None:
        self._redis.enter_context(redis_server(self._folder, port=self._redis_port))

    def stop_redis(self) -> None:
        self._redis.close()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url) as connection:
            return connection.execute(sql.encode()).fetchall()

    # -- faults -----------------------------------------------------------------------------------

    def kill_a_web_process(self, chance: random.Random) -> None:
        victim = self.webs.pop(chance.randrange(len(self.webs)))
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
        self.start_web()

    def kill_a_worker(self, chance: random.Random) -> None:
        victim = self.workers.pop(chance.randrange(len(self.workers)))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        self.workers.append(self.installed.start_worker())

    def restart_redis(self, chance: random.Random) -> None:
        self.stop_redis()
        time.sleep(chance.uniform(0.5, 2.5))
        self.start_redis()

    def black_hole_redis(self, chance: random.Random) -> None:
        """It takes connections and says nothing."""
        with redis.Redis.from_url(self.redis_url) as client:
            pid = int(client.info()["process_id"])
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(chance.uniform(1, 4))
        finally:
            os.kill(pid, signal.SIGCONT)

    def flush_redis(self, chance: random.Random) -> None:
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()

    def restart_postgresql(self, chance: random.Random) -> None:
        """A backend that dies makes the server drop every connection and start again from its log."""
        with psycopg.connect(self.database_url) as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)
        wait_until(self._database_answers, what="PostgreSQL coming back")

    def close_the_database(self, chance: random.Random) -> None:
        """Every connection is dropped and none let in, for as long as a run has time for."""
        # Redis may have been emptied a moment ago: what a process does not know by then it cannot ask for, and it keeps
        # what it hears of a key only once it reads Redis again.
        time.sleep(REDIS_TIMEOUT_SECONDS + PAUSE_SECONDS)
        wait_until(lambda: all(self._knows_the_key(web) for web in self.webs), what="the key known everywhere")
        name = psycopg.conninfo.conninfo_to_dict(self.database_url)["dbname"]
        with psycopg.connect(self.database_url, dbname="template1", autocommit=True) as connection:
            began = time.monotonic()
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
            try:
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
                time.sleep(self.away_seconds)
                self.closures.append((began, time.monotonic()))
            finally:
                connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())

    def fill_the_disk(self, chance: random.Random) -> None:
        """One web process finds no room for more than a few bytes of its journal, which ends in half a line."""
        web = chance.choice(self.webs)
        newest = max(self._segments_of(web), key=lambda path: path.name)
        room = newest.stat().st_size + chance.randint(0, 400)
        resource.prlimit(web.process.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        try:
            time.sleep(chance.uniform(1, 3))
        finally:
            endless = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(web.process.pid, resource.RLIMIT_FSIZE, endless)
        # What ended meanwhile waits in memory; the next fault may be that process's end.
        time.sleep(0.5)
        wait_until(lambda: _journal_of(web) == "ok", what="the journal written and shipped", seconds=60)

    def _knows_the_key(self, web: WebProcess) -> bool:
        bearer = {"Authorization": f"Bearer {self.installed.secret}"}
        try:
            return httpx.get(f"{web.url}/v1/models", headers=bearer, timeout=5).is_success
        except httpx.HTTPError:
            return False

    def deliver_tasks_twice(self, chance: random.Random) -> None:
        with celery.Celery(broker=self.redis_url) as broker:
            for _ in range(chance.randint(4, 12)):
                broker.send_task("billing.rate_unrated")

    def _database_answers(self) -> bool:
        try:
            return bool(self.rows("select 1"))
        except psycopg.OperationalError:
            return False

    @property
    def faults(self) -> list[Callable[[random.Random], None]]:
        return [
            self.kill_a_web_process,
            self.kill_a_worker,
            self.restart_redis,
            self.black_hole_redis,
            self.flush_redis,
            self.restart_postgresql,
            self.close_the_database,
            self.fill_the_disk,
            self.deliver_tasks_twice,
        ]

    # -- afterwards -------------------------------------------------------------------------------

    def wait_until_settled(self, *, seconds: float = 180) -> None:
        wait_until(lambda: not self._abandoned(), what="adoption of the dead processes' journals", seconds=seconds)
        # The living still ship for a moment.
        wait_until(self._journals_are_empty, what="every journal shipped", seconds=seconds)
        unrated = "select count(*) from billing_usagerecord where rated_at is null"
        wait_until(lambda: self.rows(unrated) == [(0,)], what="every record rated", seconds=seconds)

    def _abandoned(self) -> list[Path]:
        living = {str(web.process.pid) for web in self.webs}
        return [path for path in self._segments() if path.name.split("-")[1] not in living]

    def _segments_of(self, web: WebProcess) -> list[Path]:
        return [path for path in self._segments() if path.name.split("-")[1] == str(web.process.pid)]

    def _segments(self) -> list[Path]:
        return list((self.installed.folder / "var" / "journal").glob("*.journal"))

    def _journals_are_empty(self) -> bool:
        """No request is in the journals that the database does not have."""
        # Half a line, left by a full disk, is of no request that was served.
        ids = {line.request_id for path in self._segments() for line in parse_lines(_bytes_of(path))}
        known = {row[0].hex for row in self.rows("select id from billing_usagerecord")}
        return ids <= known


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        # Shipped and removed since it was listed.
        return b""


def _journal_of(web: WebProcess) -> str:
    try:
        return str(httpx.get(f"{web.url}/readyz", timeout=5).json()["journal"])
    except (httpx.HTTPError, ValueError) as error:
        return str(error)


@contextmanager
def site(folder: Path, *, away_seconds: float, **environment: str) -> Iterator[Site]:
    port = free_port()
    memory, product = folder / "redis", folder / "product"
    for path in (memory, product):
        path.mkdir()
    with postgresql_server() as database_url:
        variables = NO_LIMITS | {"DATABASE_URL": database_url, "REDIS_URL": f"redis://127.0.0.1:{port}/0"} | environment
        with ExitStack() as stack:
            with redis_server(memory, port=port):
                installed = stack.enter_context(installation(product, **variables))
            made = Site(installed, memory, database_url=database_url, redis_port=port, away_seconds=away_seconds)
            stack.callback(made.stop_redis)
            for _ in range(3):
                made.start_web()
            made.workers = [installed.start_worker() for _ in range(2)]
            yield made
