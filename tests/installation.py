"""A whole installation as its users have it: a data folder, web processes, a worker, a backend, on real sockets."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import psycopg

from config.server import listen
from tests import secrecy
from tests.forked import ForkedProcess, parent, printed
from tests.services import START_SECONDS, wait_until

# One process for all of it: each start of Python with Django costs seconds on a slow machine.
SET_UP = """
import json
from io import StringIO
from django.core.management import call_command
import django
django.setup()
call_command("migrate", verbosity=0)
call_command("load_rates", stdout=StringIO())
from accounts.bootstrap import first_owner
owner = first_owner()
print(json.dumps({"email": owner.email, "password": owner.password, "secret": owner.secret}))
"""


@dataclass(slots=True)
class Installation:
    """`environment` is what its processes are started with; `secret` is the first key."""

    folder: Path
    environment: dict[str, str]
    email: str = ""
    password: str = ""
    secret: str = ""
    processes: list[ForkedProcess] = field(default_factory=list)

    def run_python(self, code: str) -> str:
        """Run code in a process of its own with the installation's settings; its standard output."""
        return printed(["-c", code], environment=self.environment)

    def manage(self, *arguments: str) -> str:
        return printed(["-m", "manage", *arguments], environment=self.environment)

    def query(self, sql: str) -> list[list[Any]]:
        """Rows of the database, as JSON has them."""
        with closing(self._connect()) as connection:
            rows: list[list[Any]] = json.loads(json.dumps(connection.execute(sql).fetchall(), default=str))
        return rows

    def _connect(self) -> Any:
        """Straight to the database: a process with Django for each look at it costs a second of work."""
        url = self.environment.get("DATABASE_URL")
        if url:
            return psycopg.connect(url, autocommit=True)
        path = Path(self.environment["DATA_DIR"]) / "token-factory.sqlite3"
        return sqlite3.connect(path, timeout=20, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)

    def start_web(
        self,
        *,
        environment: Mapping[str, str] | None = None,
        prelude: str = "",
        seconds: float = START_SECONDS,
        port: int = 0,
    ) -> WebProcess:
        """`prelude` is code that the process runs before it serves; `seconds` is how long it may take to."""
        program = ["-c", f"{prelude}\nfrom config.server import main\nmain()"] if prelude else ["-m", "config.server"]
        sock = listen("127.0.0.1", port)
        fd = sock.fileno()
        process = self._start(*program, "--fd", str(fd), log="web.log", fds=[fd], environment=environment)
        web = WebProcess(process, sock.getsockname()[1])
        sock.close()
        up = "the web process answering"
        wait_until(lambda: process.poll() is not None or web.is_up(), what=up, seconds=seconds)
        assert process.poll() is None, (self.folder / "web.log").read_text()
        return web

    def start_worker(self) -> ForkedProcess:
        return self._start(
            "-m", "celery", "-A", "config.celery:app", "--quiet", "worker", "--beat", "--loglevel", "WARNING",
            "--without-gossip", "--without-mingle", "--without-heartbeat", log="worker.log",
        )  # fmt: skip

    def start_demo(self, *arguments: str) -> str:
        """Start the demo backend; its base URL. Its own log of what it generated is `demo.jsonl`."""
        sock = listen("127.0.0.1", 0)
        fd, port = sock.fileno(), sock.getsockname()[1]
        log = str(self.folder / "demo.jsonl")
        self._start("-m", "gateway.demo", "--fd", str(fd), "--log", log, *arguments, log="demo.log", fds=[fd])
        sock.close()
        url = f"http://127.0.0.1:{port}/v1"
        wait_until(lambda: _answers(f"{url}/models"), what="the demo backend answering")
        return url

    def _start(
        self, *arguments: str, log: str, fds: list[int] | None = None, environment: Mapping[str, str] | None = None
    ) -> ForkedProcess:
        with (self.folder / log).open("ab") as output:
            process = parent().start(
                arguments,
                environment=self.environment | dict(environment or {}),
                fds=[output.fileno(), output.fileno(), *(fds or [])],
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True, slots=True)
class WebProcess:
    process: ForkedProcess
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_up(self) -> bool:
        return _answers(f"{self.url}/healthz")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


@cache
def _set_up_on_sqlite() -> tuple[tempfile.TemporaryDirectory[str], str]:
    """A data folder as the first start leaves it, and its owner, once a run: migrating takes seconds each time."""
    folder = tempfile.TemporaryDirectory(prefix="token-factory-")
    return folder, Installation(Path(), _environment(Path(folder.name))).run_python(SET_UP)


def _environment(data_dir: Path, **environment: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in PRODUCT_VARIABLES}
    # Bytecode is kept: the many processes of a test would compile the same files again and again.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    own = {"DJANGO_SETTINGS_MODULE": "config.settings", "DATA_DIR": str(data_dir), "PYTHONUNBUFFERED": "1"}
    return inherited | NO_LIMITS | own | environment


@contextmanager
def installation(folder: Path, **environment: str) -> Iterator[Installation]:
    """An installed product in `folder`, nothing running yet; ends what was started in it."""
    made = Installation(folder, _environment(folder / "var", **environment))
    if "DATABASE_URL" in environment:
        owner = json.loads(made.run_python(SET_UP))
    else:
        data, printed = _set_up_on_sqlite()
        shutil.copytree(data.name, made.environment["DATA_DIR"])
        owner = json.loads(printed)
    made.email, made.password, made.secret = owner["email"], secrecy.is_secret(owner["password"]), owner["secret"]
    try:
        yield made
    finally:
        made.stop()
    secrecy.check_folder(folder)
    secrecy.check_sessions(row[0] for row in made.query("SELECT session_data FROM django_session"))


# Tests make more requests than a person may; those of the limits set them.
NO_LIMITS = {
    "RATE_LIMIT_KEY_RPM": "0",
    "RATE_LIMIT_IP_RPM": "0",
    "RATE_LIMIT_WRONG_KEY_RPM": "0",
    "RATE_LIMIT_KEY_CONCURRENCY": "0",
    "TEAM_POINTS_LIMIT": "0",
}
PRODUCT_VARIABLES = frozenset({"DATA_DIR", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE"})
