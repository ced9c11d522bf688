"""The measured figures as Markdown, and their place in docs/performance.md."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from programs import ROOT, BenchError
from workloads import GATEWAY, NGINX, ROWS, SCALED, Round

if TYPE_CHECKING:
    from growth import Growth

PAGE = ROOT / "docs" / "performance.md"
MEMORY_ROW, RATING_ROW = "memory per 1,000 open streams, MB", "records rated/s by one process, {database}"


@dataclass(slots=True)
class Results:
    """Everything that one run of the command has measured."""

    quick: bool
    targets: list[str]
    machine: str
    rounds: list[Round] = field(default_factory=list)
    # By column.
    memory_mb: dict[str, float] = field(default_factory=dict)
    growth: list[Growth] = field(default_factory=list)
    rating: list[dict[str, Any]] = field(default_factory=list)
    records: str = ""


def machine() -> str:
    """Cores, processor, system, Python and how fast it is, and how busy the machine is: asked at the start of a run."""
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores of {_processor()}, Linux {platform.release()}, {platform.python_implementation()} "
        f"{platform.python_version()} ({platform.python_compiler()}), where a loop of five million additions takes "
        f"{min(_loop_seconds() for _ in range(3)):.2f} s, load average {load:.1f} at the start"
    )


def _loop_seconds() -> float:
    """How an interpreter was built shows here more surely than in what it says of itself."""
    begun, total = time.perf_counter(), 0
    for number in range(5_000_000):
        total += number
    return time.perf_counter() - begun


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def markdown(results: Results) -> str:
    count = len(results.rounds)
    kind = f"medians of {count} interleaved rounds" if count > 1 else "one round"
    kind = "one quick round, a look only" if results.quick else kind
    day = datetime.now(UTC).date().isoformat()
    parts = [f"Measured on {day}, {kind}: {results.machine}."]
    if results.rounds or results.rating:
        parts += ["\n".join(_table(results)), results.records]
    return "\n\n".join([*parts, *(growth.markdown() for growth in results.growth)])


def _table(results: Results) -> list[str]:
    ours = [name for name in (GATEWAY, SCALED) if name in results.targets] or [GATEWAY]
    names = [name for name in results.targets if name not in ours]
    ratio = [f"{GATEWAY} ÷ {NGINX}"] if NGINX in names else []
    head = ["", *names, *(f"**{name}**" for name in ours), *ratio, "must", "aim"]
    rows = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in ROWS:
        medians = {name: row.median(results.rounds, name) for name in results.targets}
        if medians.get(GATEWAY) is None:
            continue
        shown = [_figure(medians[name], row.digits) for name in (*names, *ours)]
        rows.append([row.label, *shown, *[_ratio(medians)] * len(ratio), row.must, row.aim])
    empty = ["–"] * len(names)
    blank = ["–"] * len(ratio)
    if results.memory_mb:
        shown = [_figure(results.memory_mb.get(name), 0) for name in ours]
        rows.append([MEMORY_ROW, *empty, *shown, *blank, "60", "25"])
    for rating in results.rating:
        # The budget is for PostgreSQL; SQLite has one writer and no budget.
        budget = ["10,000", "30,000"] if rating["database"] == "postgresql" else ["", ""]
        speed = _figure(rating["records"] / rating["seconds"], 0)
        # Embedded is SQLite; where PostgreSQL is, the gateway is at scale.
        column = SCALED if rating["database"] == "postgresql" and SCALED in ours else GATEWAY
        shown = [speed if name == column else "–" for name in ours]
        rows.append([RATING_ROW.format(database=rating["name"]), *empty, *shown, *blank, *budget])
    return [f"| {' | '.join(row)} |" for row in rows]


def _ratio(medians: dict[str, float | None]) -> str:
    ours, theirs = medians[GATEWAY], medians.get(NGINX)
    return f"{ours / theirs:.2f}" if ours is not None and theirs is not None and theirs > 0 else "–"


def _figure(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def write_page(text: str, page: Path = PAGE, *, part: str = "bench") -> None:
    """Replace what stands between the part's two markers."""
    opening, closing = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(opening)
    _, end, behind = rest.partition(closing)
    if not begin or not end:
        raise BenchError(f"{page} has no {opening} … {closing}")
    page.write_text(f"{before}{opening}\n\n{text}\n\n{closing}{behind}", encoding="utf-8")


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def round_summary(one_round: Round, targets: Sequence[str]) -> str:
    """One line for a person who waits."""
    speeds = one_round.get("whole, 64", {})
    return ", ".join(f"{name} {speeds[name]['requests_per_second']:,.0f}/s" for name in targets if name in speeds)
