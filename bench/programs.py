"""What the measurements run: C programs built on first use, and servers on loopback that end with their block."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
BUILD = BENCH / "build"
PR_SET_PDEATHSIG = 1
START_SECONDS = 60.0
STOP_SECONDS = 40.0


class BenchError(Exception):
    """A measurement cannot be made; the text says why."""


def compiled(name: str) -> Path:
    """The program built from `name`.c, newer than its source."""
    return _built(name, name)


def preloadable(name: str) -> Path:
    """The library built from `name`.c."""
    return _built(name, f"{name}.so", "-shared", "-fPIC")


def _built(name: str, target: str, *options: str) -> Path:
    source, program = BENCH / f"{name}.c", BUILD / target
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", *options, "-o", program, source], check=True)
    return program


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    user: str | None = None,
    stdout: int | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block lasts. It also ends when this one is killed."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=descriptors,
            user=user,
            cwd=ROOT,
            stdout=stdout or output,
            stderr=output,
            # Ctrl-C goes to the whole terminal group; here the blocks' ends decide who ends when.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_until(
    condition: Callable[[], bool],
    *,
    what: str,
    process: subprocess.Popen[bytes],
    log: Path,
    seconds: float = START_SECONDS,
) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-2000:]
            raise BenchError(f"{what} does not answer; its log ends:\n{tail}")
        time.sleep(0.05)


def get(port: int, path: str, *, key: str = "") -> bytes | None:
    """The body of a 200 answer from this machine, None for anything else."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        return response.read() if response.status == 200 else None
    except (http.client.HTTPException, OSError):
        return None
    finally:
        connection.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def mock_upstream(folder: Path) -> Iterator[int]:
    """The C upstream; its port."""
    command = [compiled("mock")]
    with running(command, log=folder / "mock.log", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["port"]


def wait_until_quiet(mock_port: int, *, seconds: float = 30.0) -> None:
    """Until the mock upstream has no open stream: the gateway reads those of clients who left to their end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        counts = get(mock_port, "/counts")
        if counts and json.loads(counts)["open"] == 0:
            return
        time.sleep(0.1)


def load(port: int, *arguments: str, limit_seconds: float, pids: Sequence[int] = ()) -> dict[str, Any]:
    """One run of the load generator; what it printed."""
    command: list[str | Path] = [compiled("load"), "--port", str(port), "--pids", ",".join(map(str, pids)), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=limit_seconds)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def find_postgresql() -> Path | None:
    """The folder of PostgreSQL's server programs."""
    for folder in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (folder / "initdb").exists():
            return folder
    program = shutil.which("initdb")
    return Path(program).resolve().parent if program else None


@dataclass(frozen=True, slots=True)
class Cluster:
    """An empty PostgreSQL in a folder, with the server's own settings (fsync on); as user postgres where root runs
    this."""

    data: Path
    port: int
    user: str | None
    programs: Path

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def command(self) -> list[str | Path]:
        data = self.data
        return [self.programs / "postgres", "-D", data, "-p", str(self.port), "-h", "127.0.0.1", "-k", data]

    def answers(self) -> bool:
        ready: list[str | Path] = [self.programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        return subprocess.run(ready, check=False).returncode == 0


def new_cluster(folder: Path) -> Cluster:
    programs = find_postgresql()
    assert programs is not None
    user = "postgres" if os.geteuid() == 0 else None
    data = folder / "postgresql"
    data.mkdir(mode=0o700)
    if user:
        folder.chmod(0o711)
        shutil.chown(data, user, user)
    create: list[str | Path] = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust"]
    subprocess.run(create, check=True, user=user, cwd=data, stdout=subprocess.DEVNULL)
    return Cluster(data, free_port(), user, programs)


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """The URL of an empty database."""
    cluster, log = new_cluster(folder), folder / "postgresql.log"
    with running(cluster.command, log=log, user=cluster.user) as process:
        wait_until(cluster.answers, what="PostgreSQL", process=process, log=log)
        yield cluster.url


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """The URL of a Redis that keeps nothing."""
    port, log = free_port(), folder / "redis.log"
    with running(redis_command(folder, port), log=log) as process:
        wait_until(lambda: accepts(port), what="Redis", process=process, log=log)
        yield f"redis://127.0.0.1:{port}/0"


def redis_command(folder: Path, port: int) -> list[str]:
    return ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
