"""Child processes under one parent: started, restarted when they die, stopped together."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PR_SET_PDEATHSIG = 1
# A process that dies this often in a row, each time this soon after its start, will not get better.
HOPELESS_STARTS = 3
EARLY_SECONDS = 3.0


class Hopeless(Exception):
    """A process dies again and again right after its start."""


@dataclass(slots=True)
class Child:
    """One process. `stop_order`: lower ones are ended first, and gone before the next are told."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    stop_order: int = 0
    descriptors: Sequence[int] = ()
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    early_deaths: int = 0

    def start(self) -> None:
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *self.arguments],
            env=self.environment,
            pass_fds=self.descriptors,
            # Ctrl-C goes to the whole terminal group; the parent alone decides who ends when.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    def restart_if_dead(self) -> bool:
        if self.process is None or self.process.poll() is None:
            return False
        early = time.monotonic() - self.started_at < EARLY_SECONDS
        self.early_deaths = self.early_deaths + 1 if early else 1
        if self.early_deaths >= HOPELESS_STARTS:
            raise Hopeless(f"{self.name} ended {self.early_deaths} times with status {self.process.returncode}")
        self.start()
        return True


@dataclass(slots=True)
class Family:
    children: list[Child] = field(default_factory=list)

    def start(self) -> None:
        for child in self.children:
            child.start()

    def restart_dead(self) -> list[Child]:
        """Those that were dead and run again. Raises Hopeless."""
        return [child for child in self.children if child.restart_if_dead()]

    def send(self, number: int, *, to: str) -> None:
        """Pass a signal on to the children whose name begins so."""
        for child in self.children:
            if child.name.startswith(to) and child.process and child.process.poll() is None:
                child.process.send_signal(number)

    def stop(self, *, within_seconds: float) -> None:
        """SIGTERM in stop order; whoever is left at the end of the time is killed."""
        deadline = time.monotonic() + within_seconds
        for order in sorted({child.stop_order for child in self.children}):
            running = [
                child.process
                for child in self.children
                if child.stop_order == order and child.process and child.process.poll() is None
            ]
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _die_with_parent() -> None:
    """Linux ends the child when its parent is killed; elsewhere it is left to the person."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
