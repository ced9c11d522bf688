"""Faults under load: steady traffic through an installation at scale while it is hurt in one way after another.

    uv run bench/faults.py                     # every fault once, about ten minutes
    uv run bench/faults.py --only redis        # those whose name matches
    uv run bench/faults.py --write             # and puts the table into docs/reliability.md

For each fault: what the clients of the steady traffic saw, the longest any of them waited for its next piece, how many
answers whose end was seen have no record (which must be none), and how long after its end everything was as before.
Everything listens on loopback, lives in a temporary folder and ends with the command; PostgreSQL, Redis and a C
compiler are needed.
"""

from __future__ import annotations

import argparse
import re
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import scenarios
from installation import Installation, installation
from programs import BENCH, ROOT, BenchError, running
from report import machine, progress, write_page
from scenarios import FAULTS, Fault
from steady import Seen, read_seen

PAGE = ROOT / "docs" / "reliability.md"
BEFORE_SECONDS = 3.0
# Without a failure for so long, everything is as before.
CALM_SECONDS = 4.0
GIVE_UP_SECONDS = 120.0
# Whoever waits longer has noticed.
UNNOTICED_SECONDS = 1.0
HEAD = ("fault", "requests", "what their clients saw", "longest wait, s", "lost", "answers again, s", "ledger whole, s")


class Traffic:
    """The clients, in a process of their own."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def overlapping(self, since: float) -> list[Seen]:
        """Requests that ended later than that, or are not over yet."""
        return [seen for seen in read_seen(self._file) if seen.ended_at >= since or seen.outcome == "open"]


@contextmanager
def traffic(site: Installation, *options: str) -> Iterator[Traffic]:
    file = site.folder / "seen.jsonl"
    ports = ",".join(str(site.ports[name]) for name in scenarios.WEBS)
    command = [sys.executable, BENCH / "steady.py", "--ports", ports, "--key", site.key, "--out", file, *options]
    with running(command, log=site.folder / "steady.log"):
        yield Traffic(file)


@dataclass(frozen=True, slots=True)
class Finding:
    fault: Fault
    seen: list[Seen]
    lost: int
    answers_seconds: float
    ledger_seconds: float
    note: str

    @property
    def row(self) -> tuple[str, ...]:
        stall = max((seen.stall_seconds for seen in self.seen), default=0.0)
        return (
            self.fault.name,
            f"{len(self.seen):,}",
            self._outcomes(),
            f"{stall:.1f}",
            str(self.lost),
            _seconds(self.answers_seconds),
            _seconds(self.ledger_seconds),
        )

    def _outcomes(self) -> str:
        counts = Counter(_words_of(seen) for seen in self.seen)
        return ", ".join(f"{count:,} {words}" for words, count in counts.most_common())


def _words_of(seen: Seen) -> str:
    match seen.outcome:
        case "refused":
            return str(seen.status)
        case "none":
            return "no answer"
        case "cut":
            return "broken off"
        case "left":
            return "left by themselves"
    return "whole"


def _seconds(value: float) -> str:
    return "–" if value < 0 else f"{value:.1f}"


def try_fault(site: Installation, clients: Traffic, fault: Fault) -> Finding:
    time.sleep(BEFORE_SECONDS)
    began = time.monotonic()
    note = fault.happen(site)
    over = time.monotonic()
    seen, ledger_seconds = _wait_until_as_before(site, clients, began, over)
    ended = {one.request_id for one in seen if one.outcome == "ended"}
    failures = [one.ended_at for one in seen if _has_failed(one) and one.ended_at > over]
    answers_seconds = max(failures, default=over) - over
    return Finding(fault, seen, len(_lost(site, ended)), answers_seconds, ledger_seconds, note)


def _lost(site: Installation, ended: set[str]) -> set[str]:
    """Those whose record never comes; that of an answer which has just ended is on its way."""
    deadline = time.monotonic() + CALM_SECONDS
    while (lost := site.unknown(ended)) and time.monotonic() < deadline:
        time.sleep(0.25)
    return lost


def _has_failed(seen: Seen) -> bool:
    return seen.outcome in ("none", "refused", "cut") or seen.stall_seconds > UNNOTICED_SECONDS


def _wait_until_as_before(site: Installation, clients: Traffic, began: float, over: float) -> tuple[list[Seen], float]:
    """Until no client has failed for a while and the ledger has all that the fault's clients saw, rated; what they saw,
    and after how many seconds the ledger was whole (−1: it never was)."""
    ledger_at = 0.0
    while time.monotonic() - over < GIVE_UP_SECONDS:
        time.sleep(0.25)
        now, seen = time.monotonic(), clients.overlapping(began)
        begun = {one.request_id for one in seen if one.status == 200 and one.ended_at <= over + CALM_SECONDS}
        if any(one.outcome == "open" and one.began_at <= over + CALM_SECONDS for one in seen):
            continue
        if not ledger_at and now > over + CALM_SECONDS and not _missing(site, begun):
            ledger_at = now
        last = max((one.ended_at for one in seen if _has_failed(one)), default=over)
        if ledger_at and now - max(last, over) >= CALM_SECONDS:
            return _over(seen), max(0.0, ledger_at - over - CALM_SECONDS)
    return _over(clients.overlapping(began)), -1.0


def _over(seen: Sequence[Seen]) -> list[Seen]:
    return [one for one in seen if one.outcome != "open"]


def _missing(site: Installation, ids: set[str]) -> bool:
    try:
        return bool(site.unknown(ids, and_unrated=True))
    except Exception as error:  # noqa: BLE001 -- the database may still be coming back; said, and looked at again
        progress(f"  the database: {type(error).__name__}")
        return True


def markdown(findings: Sequence[Finding], *, verdict: str, machine: str) -> str:
    rows = [HEAD, ("---", "---:", "---", "---:", "---:", "---:", "---:"), *(finding.row for finding in findings)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(f"- *{finding.fault.name}*: {finding.fault.told}{finding.note}" for finding in findings)
    day = time.strftime("%Y-%m-%d")
    return f"Measured on {day}: {machine}.\n\n{table}\n\n{verdict}\n\n{notes}"


def run(only: str) -> tuple[list[Finding], str]:
    chosen = [fault for fault in FAULTS if re.search(only, fault.name)]
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="token-factory-faults-") as name, installation(Path(name)) as site:
        with traffic(site) as clients:
            time.sleep(BEFORE_SECONDS)
            for fault in chosen:
                findings.append(try_fault(site, clients, fault))
                progress(" | ".join(findings[-1].row) + f" | {findings[-1].note}")
        site.wait_until_rated()
        seen = read_seen(site.folder / "seen.jsonl")
        lost = site.unknown({one.request_id for one in seen if one.outcome == "ended"})
        ended = sum(one.outcome == "ended" for one in seen)
        verdict = f"Of {len(seen):,} requests {ended:,} were seen to their end; {len(lost)} of these have no record. "
        return findings, f"{verdict}`reconcile` at the end: {site.reconcile()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression for their names")
    parser.add_argument("--write", action="store_true", help="put the table into docs/reliability.md")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    measured_on = machine()
    try:
        findings, verdict = run(options.only)
    except KeyboardInterrupt:
        progress("interrupted")
        return 130
    except BenchError as error:
        progress(f"faults: {error}")
        return 1
    text = markdown(findings, verdict=verdict, machine=measured_on)
    print(text)
    if options.write:
        write_page(text, PAGE, part="faults")
    return int(any(finding.lost for finding in findings) or "No difference." not in verdict)


if __name__ == "__main__":
    sys.exit(main())
