"""The faults: each happens to a running installation, which is whole again (or on its way) when it returns. What it
returns are words for the table's notes, of what others than the steady traffic's clients saw."""

from __future__ import annotations

import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import attacks
import httpx
from installation import REQUEST_TIMEOUT_SECONDS, WEBS, WORKERS, Installation
from odd_servers import GIGABYTE

AWAY_SECONDS = 5.0
BLACK_HOLE_SECONDS = 10.0
# What a supervisor takes (RestartSec of the units).
RESTART_SECONDS = 1.0
# Longer than a web process waits for a head.
SLOW_CONNECTIONS, SLOW_SECONDS = 5_000, 85.0
GUESSING_SECONDS = 10.0
HOUR = 3_600.0
ENDLESS = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    told: str
    happen: Callable[[Installation], str]


# -- processes that go away --------------------------------------------------------------------


def kill_web(site: Installation) -> str:
    site.kill("web-1")
    time.sleep(RESTART_SECONDS)
    site.start("web-1", wait=False)
    return ""


def kill_workers(site: Installation) -> str:
    site.kill(*WORKERS)
    time.sleep(AWAY_SECONDS)
    for name in WORKERS:
        site.start(name)
    return ""


def kill_beat(site: Installation) -> str:
    site.kill("beat")
    time.sleep(AWAY_SECONDS)
    site.start("beat")
    return ""


def kill_redis(site: Installation) -> str:
    site.kill("redis")
    time.sleep(AWAY_SECONDS)
    site.start("redis")
    return ""


def kill_postgresql(site: Installation) -> str:
    site.kill_postgresql()
    time.sleep(AWAY_SECONDS)
    site.start("postgresql")
    return ""


# -- silence -----------------------------------------------------------------------------------


def black_hole_redis(site: Installation) -> str:
    with site.stopped(site.pid("redis")):
        time.sleep(BLACK_HOLE_SECONDS)
    return ""


def black_hole_postgresql(site: Installation) -> str:
    with site.stopped(*site.postgresql_pids()):
        time.sleep(BLACK_HOLE_SECONDS)
    return ""


def black_hole_upstream(site: Installation) -> str:
    with site.stopped(site.pid("mock-1")):
        time.sleep(BLACK_HOLE_SECONDS)
    return ""


def silent_upstream(site: Installation) -> str:
    status, seconds, _ = _ask(site, "silent")
    return f" {status} after {seconds:.1f} s."


# -- the machine -------------------------------------------------------------------------------


def fill_the_disk(site: Installation) -> str:
    """No file of one process may grow; its journal is one."""
    pid = site.pid("web-1")
    room = site.segments("web-1")[-1].stat().st_size + 200
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    try:
        time.sleep(AWAY_SECONDS)
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, ENDLESS)
    return ""


def jump_forth(site: Installation) -> str:
    site.set_clock(HOUR)
    time.sleep(AWAY_SECONDS)
    return ""


def jump_back(site: Installation) -> str:
    site.set_clock(0.0)
    time.sleep(AWAY_SECONDS)
    return ""


# -- strangers ---------------------------------------------------------------------------------


def dawdle(site: Installation) -> str:
    ports = [site.ports[name] for name in WEBS]
    with memory_of(site) as memory, open_files_of(site) as files:
        opened, ended = attacks.dawdle(
            ports, connections=SLOW_CONNECTIONS, seconds=SLOW_SECONDS, look=lambda: (memory.look(), files.look())
        )
    return (
        f" {opened:,} were open at once, {files.most:,} files in one process, {memory} more memory; the server ended"
        f" {ended:,} of them."
    )


def guess_keys(site: Installation) -> str:
    ports = [site.ports[name] for name in WEBS]
    statuses = attacks.guess_keys(ports, connections=8, seconds=GUESSING_SECONDS)
    said = ", ".join(f"{count:,} × {status}" for status, count in statuses.most_common())
    return f" {statuses.total() / GUESSING_SECONDS:,.0f} guesses were answered a second: {said}."


def giant_bodies(site: Installation) -> str:
    with memory_of(site) as memory:
        found = attacks.giant_bodies([site.ports[name] for name in WEBS], key=site.key, rounds=8)
    said = [f"{name}: {_counted(statuses)}" for name, statuses in found.items()]
    return f" {'; '.join(said)}. {memory} more memory in one process."


def _counted(statuses: Counter[str]) -> str:
    return ", ".join(f"{count} × {status}" for status, count in statuses.items())


# -- model servers that misbehave --------------------------------------------------------------


def send_a_gigabyte(site: Installation) -> str:
    said = []
    for model, is_stream in (("giant-answer", False), ("giant-line", True), ("giant-stream", True)):
        with memory_of(site) as memory:
            status, seconds, size = _ask(site, model, stream=is_stream)
        words = f"{size / GIGABYTE:.2f} GB" if size > 10_000_000 else f"{size:,} bytes"
        said.append(f"{model}: {status} and {words} in {seconds:.1f} s, {memory} more memory")
    return f" {'; '.join(said)}."


def show_certificates(site: Installation) -> str:
    said = []
    for model in ("good-certificate", "expired-certificate", "other-name", "unknown-authority"):
        status, seconds, _ = _ask(site, model)
        said.append(f"{model}: {status} after {seconds:.2f} s")
    return f" {'; '.join(said)}."


def _ask(site: Installation, model: str, *, stream: bool = False) -> tuple[str, float, int]:
    """Status, seconds and bytes of one call."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "stream": stream}
    url = f"http://127.0.0.1:{site.ports['web-1']}/v1/chat/completions"
    began, size, status = time.monotonic(), 0, "no answer"
    headers = {"authorization": f"Bearer {site.key}"}
    try:
        with httpx.stream("POST", url, json=body, headers=headers, timeout=120, trust_env=False) as response:
            status = str(response.status_code)
            for piece in response.iter_raw():
                size += len(piece)
    except httpx.HTTPError as error:
        status = f"{status}, then {type(error).__name__}"
    return status, time.monotonic() - began, size


# -- what a process holds ----------------------------------------------------------------------


class Watched:
    """How far a figure of the web processes rose above where it began."""

    def __init__(self, read: Callable[[], list[int]]) -> None:
        self._read = read
        self._before = read()
        self.most = 0

    def look(self) -> None:
        now = self._read()
        self.most = max(self.most, *(after - before for after, before in zip(now, self._before, strict=True)))

    def __str__(self) -> str:
        return f"{self.most / 1e6:.0f} MB"


@contextmanager
def memory_of(site: Installation) -> Iterator[Watched]:
    with _watched(Watched(lambda: [resident_bytes(site.pid(name)) for name in WEBS])) as memory:
        yield memory


@contextmanager
def open_files_of(site: Installation) -> Iterator[Watched]:
    with _watched(Watched(lambda: [open_files(site.pid(name)) for name in WEBS])) as files:
        yield files


@contextmanager
def _watched(watched: Watched) -> Iterator[Watched]:
    over = threading.Event()

    def look_again_and_again() -> None:
        while not over.wait(0.1):
            watched.look()

    thread = threading.Thread(target=look_again_and_again)
    thread.start()
    try:
        yield watched
    finally:
        over.set()
        thread.join()


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


FAULTS = (
    Fault("web process killed", "SIGKILL, started again a second later; half of the clients ask it.", kill_web),
    Fault("both workers killed", f"SIGKILL, started again {AWAY_SECONDS:.0f} s later.", kill_workers),
    Fault("beat killed", f"SIGKILL, started again {AWAY_SECONDS:.0f} s later.", kill_beat),
    Fault("Redis killed", f"SIGKILL, empty and started again {AWAY_SECONDS:.0f} s later.", kill_redis),
    Fault("PostgreSQL killed", f"SIGKILL, started again {AWAY_SECONDS:.0f} s later.", kill_postgresql),
    Fault("Redis silent", f"stopped for {BLACK_HOLE_SECONDS:.0f} s, its sockets open.", black_hole_redis),
    Fault(
        "PostgreSQL silent",
        f"all its processes stopped for {BLACK_HOLE_SECONDS:.0f} s, their sockets open.",
        black_hole_postgresql,
    ),
    Fault(
        "model server silent",
        f"one of two stopped for {BLACK_HOLE_SECONDS:.0f} s; what was with it waits for it, and goes on.",
        black_hole_upstream,
    ),
    Fault(
        "model server silent for good",
        f"a model whose one server takes a call and says nothing, `REQUEST_TIMEOUT_SECONDS={REQUEST_TIMEOUT_SECONDS}`:",
        silent_upstream,
    ),
    Fault(
        "disk full",
        f"no room for the journal of one of the web processes for {AWAY_SECONDS:.0f} s (`RLIMIT_FSIZE`).",
        fill_the_disk,
    ),
    Fault("clock an hour ahead", "the clocks of all our processes, at once.", jump_forth),
    Fault("clock an hour back", "the same, to where it was.", jump_back),
    Fault(
        "5,000 slow connections",
        f"each sends a byte of a header every second for {SLOW_SECONDS:.0f} s, without a proxy in front.",
        dawdle,
    ),
    Fault(
        "wrong keys", f"unknown ones for {GUESSING_SECONDS:.0f} s, as fast as 16 connections are answered.", guess_keys
    ),
    Fault("giant bodies", "eight of each, four at once.", giant_bodies),
    Fault(
        "model server sends 1 GB",
        "as one answer, as one line of a stream, as a stream of proper events.",
        send_a_gigabyte,
    ),
    Fault("certificate errors", "of a model's one server.", show_certificates),
)
