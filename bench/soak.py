"""The soak: hundreds of streams for a long time with faults on, and whether anything grows that should not.

    uv run bench/soak.py                            # 30 minutes, 500 streams
    uv run bench/soak.py --minutes 5 --write        # shorter, and its figures into docs/reliability.md

`web-1`, `worker-1` and beat live from beginning to end and are what is judged; everything else takes its turn at being
hurt, one fault a minute. Flat is:

- memory: the median of the last fifth of the time is at most a tenth (and 8 MB) above that of the second fifth;
- open files: at the end, when the clients are gone, no more than before they came, but for the connections that are
  kept for the next call; of these no more than there were at any time under load;
- `reconcile` finds no difference, and no answer that was seen to its end is without its record.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from faults import PAGE, traffic
from installation import MOCKS, Installation, installation
from programs import BenchError
from report import machine, progress, write_page
from scenarios import open_files, resident_bytes
from steady import read_seen

LOOK_EVERY_SECONDS = 5.0
FAULT_EVERY_SECONDS = 60.0
# Streams whose clients left are read on for 30 s, and those that ended by themselves are over long before.
QUIET_SECONDS = 45.0
GROWTH, MARGIN_BYTES = 1.1, 8_000_000
# A log that was opened, a file that is just being written. A leak has one a call.
MARGIN_FILES = 5
WATCHED = ("web-1", "worker-1", "beat")


# -- faults ------------------------------------------------------------------------------------


def kill_web(site: Installation) -> None:
    site.kill("web-2")
    site.start("web-2")


def kill_worker(site: Installation) -> None:
    site.kill("worker-2")
    site.start("worker-2")


def restart_redis(site: Installation) -> None:
    site.kill("redis")
    time.sleep(2)
    site.start("redis")


def silence_redis(site: Installation) -> None:
    with site.stopped(site.pid("redis")):
        time.sleep(5)


def restart_postgresql(site: Installation) -> None:
    site.kill_postgresql()
    time.sleep(2)
    site.start("postgresql")


def silence_postgresql(site: Installation) -> None:
    with site.stopped(*site.postgresql_pids()):
        time.sleep(5)


def restart_model_server(site: Installation) -> None:
    site.kill("mock-2")
    time.sleep(2)
    site.start("mock-2")


FAULTS: tuple[Callable[[Installation], None], ...] = (
    kill_web,
    silence_redis,
    kill_worker,
    restart_postgresql,
    restart_model_server,
    restart_redis,
    silence_postgresql,
)


# -- looking -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    seconds: float
    memory: dict[str, int]
    files: dict[str, int]
    connections: dict[str, int]
    """Kept ones are among the files: to model servers, PostgreSQL and Redis."""


def look(site: Installation, *, began: float) -> Look:
    pids = {name: site.pid(name) for name in WATCHED}
    return Look(
        time.monotonic() - began,
        {name: resident_bytes(pid) for name, pid in pids.items()},
        {name: open_files(pid) for name, pid in pids.items()},
        {name: _connections(site, pid) for name, pid in pids.items()},
    )


def _connections(site: Installation, pid: int) -> int:
    """Of a process to what it calls."""
    called = [*(site.ports[name] for name in (*MOCKS, "redis")), site.cluster.port]
    ports = {f"{port:04X}" for port in called}
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    # All processes share one network: whose a socket is, its inode says.
    inodes = {line.split()[9] for line in lines if line.split()[2].rpartition(":")[2] in ports}
    return sum(_inode_of(link) in inodes for link in Path(f"/proc/{pid}/fd").iterdir())


def _inode_of(link: Path) -> str:
    try:
        return link.readlink().name.removeprefix("socket:[").removesuffix("]")
    except OSError:
        return ""


# -- the run -----------------------------------------------------------------------------------


def soak(site: Installation, *, minutes: float, streams: int) -> tuple[list[Look], Look, Counter[str]]:
    """The looks under load, the last one of all when everybody is gone, and how often each fault happened."""
    done: Counter[str] = Counter()
    options = ("--streams", str(streams), "--whole", "8", "--chunks", "60", "--pace-ms", "500", "--ramp", "20")
    with traffic(site, *options):
        began = time.monotonic()
        due, faults, looks = began + FAULT_EVERY_SECONDS / 2, itertools.cycle(FAULTS), []
        while time.monotonic() - began < minutes * 60:
            time.sleep(LOOK_EVERY_SECONDS)
            looks.append(look(site, began=began))
            if time.monotonic() > due:
                fault = next(faults)
                fault(site)
                done[fault.__name__.replace("_", " ")] += 1
                due += FAULT_EVERY_SECONDS
                progress(f"{looks[-1].seconds:.0f} s: {fault.__name__}, {looks[-1]}")
    time.sleep(QUIET_SECONDS)
    return looks, look(site, began=began), done


@dataclass(frozen=True, slots=True)
class Judged:
    what: str
    early: float
    late: float
    is_flat: bool

    @property
    def row(self) -> str:
        return f"| {self.what} | {self.early:,.0f} | {self.late:,.0f} | {'flat' if self.is_flat else '**not flat**'} |"


def judge(looks: list[Look], before: Look, after: Look) -> list[Judged]:
    fifth = max(1, len(looks) // 5)
    judged = []
    for name in WATCHED:
        early = median(one.memory[name] for one in looks[fifth : 2 * fifth] or looks)
        late = median(one.memory[name] for one in looks[-fifth:])
        is_flat = late <= early * GROWTH + MARGIN_BYTES
        judged.append(Judged(f"memory of {name}, MB", early / 1e6, late / 1e6, is_flat))
    for name in WATCHED:
        early, late = (one.files[name] - one.connections[name] for one in (before, after))
        judged.append(Judged(f"open files of {name}, nobody there", early, late, late <= early + MARGIN_FILES))
        most, kept = max(one.connections[name] for one in looks), after.connections[name]
        judged.append(Judged(f"connections of {name}, at most and when nobody is there", most, kept, kept <= most))
    return judged


def run(*, minutes: float, streams: int) -> tuple[str, bool]:
    """The page's text, and whether all is well."""
    measured_on = machine()
    with tempfile.TemporaryDirectory(prefix="token-factory-soak-") as name, installation(Path(name)) as site:
        before = look(site, began=time.monotonic())
        looks, after, faults = soak(site, minutes=minutes, streams=streams)
        site.wait_until_rated()
        seen = read_seen(site.folder / "seen.jsonl")
        ended = {one.request_id for one in seen if one.outcome == "ended"}
        lost = site.unknown(ended)
        verdict = site.reconcile()
    judged = judge(looks, before, after)
    outcomes = ", ".join(
        f"{count:,} {outcome}" for outcome, count in Counter(one.outcome for one in seen).most_common()
    )
    happened = ", ".join(f"{name} ({count})" for name, count in faults.items())
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')}: {measured_on}. {minutes:g} minutes, {streams} streams of two chunks"
        " a second.",
        "",
        "| | early | late | |",
        "| --- | ---: | ---: | --- |",
        *(one.row for one in judged),
        "",
        f"Faults: {happened}. Of {len(seen):,} requests: {outcomes}. {len(lost)} of the {len(ended):,} ended ones have"
        f" no record. `reconcile`: {verdict}",
    ]
    return "\n".join(lines), all(one.is_flat for one in judged) and not lost and "No difference." in verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--write", action="store_true", help="put the figures into docs/reliability.md")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        text, is_well = run(minutes=options.minutes, streams=options.streams)
    except KeyboardInterrupt:
        progress("interrupted")
        return 130
    except BenchError as error:
        progress(f"soak: {error}")
        return 1
    print(text)
    if options.write:
        write_page(text, PAGE, part="soak")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
