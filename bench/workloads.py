"""What is asked of each target, and what of the answers becomes a row of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from programs import load

DIRECT, NGINX, LITELLM, ROUTER = "direct", "nginx", "LiteLLM", "vLLM router"
# The gateway as `manage.py up` runs it, and with PostgreSQL and Redis.
GATEWAY, SCALED = "gateway", "gateway at scale"
PACE_US = 50_000
# Start, drain and a margin on top of what a run is asked to take.
MARGIN_SECONDS = 60.0

type Run = dict[str, Any]
# Of one round: runs by workload and target.
type Round = Mapping[str, Mapping[str, Run]]
type Reading = Callable[[Round, str], float | None]


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    port: int
    key: str = ""
    pids: tuple[int, ...] = ()
    max_connections: int = 1000

    def measure(self, workload: Workload) -> Run:
        arguments = workload.arguments(key=self.key)
        return load(self.port, *arguments, limit_seconds=workload.total_seconds + MARGIN_SECONDS, pids=self.pids)


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    connections: int
    seconds: float
    warm_up: float = 0.5
    ramp: float = 0.0
    chunks: int = 0
    pace_us: int = 0
    cut: bool = False

    @property
    def total_seconds(self) -> float:
        return self.ramp + self.warm_up + self.seconds + self.drain_seconds

    @property
    def drain_seconds(self) -> float:
        """What is still open at the end of the window is read to its end, so that every request is accounted for."""
        return 10 + 2 * self.chunks * self.pace_us / 1e6

    def arguments(self, *, key: str) -> list[str]:
        options: dict[str, object] = {
            "connections": self.connections,
            "seconds": self.seconds,
            "warm-up": self.warm_up,
            "ramp": self.ramp,
            "drain": self.drain_seconds,
            "key": key,
        }
        if self.chunks:
            options |= {"chunks": self.chunks, "pace-us": self.pace_us}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return words + ["--stream"] * bool(self.chunks) + ["--cut"] * self.cut


def workloads(*, quick: bool) -> list[Workload]:
    """Of one round. A paced stream lasts 5 s, a quick one 3 s."""
    seconds, warm_up = (0.8, 0.2) if quick else (4.0, 1.0)
    paced = {"chunks": 60, "ramp": 1.5} if quick else {"chunks": 100, "ramp": 3.0}
    chosen = [
        Workload("whole, 64", 64, seconds, warm_up),
        Workload("whole, 1", 1, seconds, warm_up),
        Workload("stream, 1", 1, seconds, warm_up, chunks=3),
        Workload("free, 50", 50, seconds, warm_up, chunks=500),
        Workload("paced, 250", 250, seconds, warm_up, pace_us=PACE_US, **paced),  # type: ignore[arg-type]
        Workload("paced, 1000", 1000, seconds, warm_up, pace_us=PACE_US, **paced),  # type: ignore[arg-type]
    ]
    return [workload for workload in chosen if not (quick and workload.name == "paced, 250")]


def open_streams(*, quick: bool) -> Workload:
    """Streams that are all open before any ends, and then cut: their clients leave, their usage must stay."""
    connections, ramp = (300, 1.5) if quick else (1000, 4.0)
    chunks = 5 if quick else 14
    return Workload("open streams", connections, 0.5, ramp=ramp, chunks=chunks, pace_us=500_000, cut=True)


WARM_UP = Workload("warm-up", 8, 0.5, 0.0, chunks=10)


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    reading: Reading
    digits: int = 0
    must: str = ""
    aim: str = ""

    def values(self, rounds: Sequence[Round], target: str) -> list[float]:
        readings = [self.reading(one_round, target) for one_round in rounds]
        return [value for value in readings if value is not None]

    def median(self, rounds: Sequence[Round], target: str) -> float | None:
        values = self.values(rounds, target)
        return median(values) if values else None


def _plain(workload: str, *path: str, scale: float = 1.0) -> Reading:
    def reading(one_round: Round, target: str) -> float | None:
        value: Any = one_round.get(workload, {}).get(target)
        for name in path:
            value = None if value is None or value.get("count") == 0 else value[name]
        return None if value is None else float(value) * scale

    return reading


def _added(workload: str, *path: str) -> Reading:
    """Milliseconds above the direct way, in the same round."""
    plain = _plain(workload, *path, scale=0.001)

    def reading(one_round: Round, target: str) -> float | None:
        there, direct = plain(one_round, target), plain(one_round, DIRECT)
        return None if target == DIRECT or there is None or direct is None else there - direct

    return reading


def _cpu_us(workload: str, rate: str) -> Reading:
    """Microseconds of the process's CPU for each unit; waiting for a busy machine is not in it."""

    def reading(one_round: Round, target: str) -> float | None:
        run = one_round.get(workload, {}).get(target)
        if run is None or not run["processes"]:
            return None
        units = run[rate] * run["seconds"]
        return float(run["processes"][0]["cpu_seconds"] * 1e6 / units) if units else None

    return reading


ROWS = (
    Row("requests/s, 64 in flight", _plain("whole, 64", "requests_per_second"), 0, "3,000", "10,000"),
    Row("added p50 at 1 in flight, ms", _added("whole, 1", "latency_us", "p50"), 2, "0.8", "0.35"),
    Row("added p99 at 1 in flight, ms", _added("whole, 1", "latency_us", "p99"), 2, "2", "1"),
    Row("added time to first chunk p50, ms", _added("stream, 1", "first_chunk_us", "p50"), 2, "0.8", "0.4"),
    Row("added time to first chunk p99, ms", _added("stream, 1", "first_chunk_us", "p99"), 2, "3", "1"),
    Row("chunks/s, 50 free-running streams", _plain("free, 50", "chunks_per_second"), 0, "100,000", "150,000"),
    Row("lag p99, 250 paced streams, ms", _plain("paced, 250", "lag_us", "p99", scale=0.001), 1),
    Row("lag p99, 1,000 paced streams, ms", _plain("paced, 1000", "lag_us", "p99", scale=0.001), 1, "15", "5"),
    Row("stalled of the 1,000", _plain("paced, 1000", "stalled"), 0, "0", "0"),
    Row("CPU a request, 64 in flight, µs", _cpu_us("whole, 64", "requests_per_second")),
    Row("CPU a chunk, 50 free-running streams, µs", _cpu_us("free, 50", "chunks_per_second"), 1),
)
