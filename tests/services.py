"""Real servers that tests need: found on this machine, started on free loopback ports, ended by their own process.

Where a server is not installed its tests are skipped by name; with REQUIRE_SERVICES=1 they fail instead.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest
from redis import Redis

from tests import secrecy

# A start takes seconds, and many times that where everything else starts at once.
START_SECONDS = 90.0


def missing(what: str) -> None:
    """Skip, or fail where the services are required."""
    text = f"{what} is not installed"
    if os.environ.get("REQUIRE_SERVICES") == "1":
        pytest.fail(text)
    pytest.skip(text)


def free_port() -> int:
    """One that neither an outgoing connection nor a server that takes any port gets before it is used."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@cache
def dead_port() -> int:
    """A port that refuses. Taken for as long as this process lives: a free one may be another test's a moment later."""
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    port: int = taken.getsockname()[1]
    taken.detach()
    return port


def wait_until(condition: Callable[[], object], *, what: str, seconds: float = START_SECONDS) -> None:
    """Poll until the condition holds; fails the test naming `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"{what} did not happen within {seconds:g} s")
        time.sleep(0.02)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def redis_server(folder: Path, *, port: int | None = None) -> Iterator[str]:
    """The URL of a Redis that keeps nothing."""
    program = shutil.which("redis-server")
    if program is None:
        missing("redis-server")
    port = port or free_port()
    process = subprocess.Popen(
        [program or "", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: accepts(port), what="Redis listening")
        yield f"redis://127.0.0.1:{port}/0"
        if process.poll() is None:
            secrecy.check_values("Redis", _values(port))
    finally:
        process.terminate()
        process.wait(10)


def _values(port: int) -> Iterator[bytes]:
    """Every key with its value, as Redis would save them."""
    with Redis(port=port) as client:
        for name in client.scan_iter():
            yield bytes(name)
            yield bytes(client.dump(name) or b"")


@contextmanager
def postgresql_server() -> Iterator[str]:
    """The URL of an empty database in a cluster of its own; as user postgres where the tests run as root."""
    programs = _postgresql_programs()
    if programs is None:
        missing("PostgreSQL")
    assert programs is not None
    user = "postgres" if os.geteuid() == 0 else None
    # Not in pytest's folder: only its owner may enter that one.
    with tempfile.TemporaryDirectory(prefix="token-factory-postgresql-") as folder:
        if user:
            shutil.chown(folder, user, user)
        with _cluster(programs, Path(folder), user=user) as url:
            yield url


@contextmanager
def _cluster(programs: Path, data: Path, *, user: str | None) -> Iterator[str]:
    options = {"user": user, "stdout": subprocess.DEVNULL, "cwd": data}
    subprocess.run([programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N"], check=True, **options)  # type: ignore[call-overload]
    port = free_port()
    process = subprocess.Popen(
        [programs / "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", data, "-F"],
        stderr=subprocess.DEVNULL,
        **options,  # type: ignore[call-overload]
    )
    try:
        ready = [str(programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(port), "-q"]
        wait_until(lambda: subprocess.run(ready, check=False).returncode == 0, what="PostgreSQL accepting connections")
        url = f"postgres://postgres@127.0.0.1:{port}/postgres"
        yield url
        rows = subprocess.run([programs / "pg_dump", "--data-only", url], check=True, stdout=subprocess.PIPE).stdout
        secrecy.check_values("PostgreSQL", [rows])
    finally:
        process.terminate()
        process.wait(20)


def _postgresql_programs() -> Path | None:
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    program = shutil.which("initdb")
    return Path(program).resolve().parent if program else None
