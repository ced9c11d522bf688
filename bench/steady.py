"""Steady traffic: clients that ask again and again, and one line for each request of what its client saw.

    python bench/steady.py --ports 8001,8002 --key SECRET --out FILE     # until SIGTERM

Clients ask the web processes in turn, without a proxy in between that would ask another one when the first is gone.
The prompt's words in brackets shape the answers of mock.c.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import httpx

PATIENCE_SECONDS = 90.0
# Of a client that was refused or found nobody, before it asks again.
REFUSED_PAUSE_SECONDS = 0.2
WHOLE_PAUSE_SECONDS = 0.2


@dataclass(slots=True)
class Seen:
    """Times are of the monotonic clock, the same in all processes of a machine. `stall_seconds`: the longest wait for
    the next piece. `outcome`: open (not over yet); ended; left (the client went); cut (the answer broke off); refused;
    none (no answer)."""

    number: int
    began_at: float
    kind: str
    ended_at: float = 0.0
    status: int = 0
    outcome: str = "open"
    stall_seconds: float = 0.0
    request_id: str = ""
    error: str = ""


def read_seen(file: Path) -> list[Seen]:
    """All that is written so far, each request as it stands; the last line may be half written."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return list({seen.number: seen for seen in (Seen(**json.loads(line)) for line in lines)}.values())


class Clients:
    def __init__(self, options: argparse.Namespace, client: httpx.AsyncClient, out: TextIO) -> None:
        self._options = options
        self._client = client
        self._out = out
        self._chance = random.Random(1)
        self._turn = 0
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        kinds = ["whole"] * self._options.whole + ["stream"] * self._options.streams
        await asyncio.gather(*(self._ask_again_and_again(kind, number) for number, kind in enumerate(kinds)))

    async def _ask_again_and_again(self, kind: str, number: int) -> None:
        # Not all at the same moment.
        await self._pause(number * self._options.ramp / max(1, self._options.whole + self._options.streams))
        while not self.stopping.is_set():
            self._turn += 1
            seen = Seen(self._turn, time.monotonic(), kind)
            self._write(seen)
            await self._ask(seen)
            self._write(seen)
            failed = seen.outcome in ("refused", "none")
            await self._pause(REFUSED_PAUSE_SECONDS if failed else WHOLE_PAUSE_SECONDS * (kind == "whole"))

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.stopping.wait()
        except TimeoutError:
            pass

    def _write(self, seen: Seen) -> None:
        self._out.write(json.dumps(asdict(seen)) + "\n")
        self._out.flush()

    async def _ask(self, seen: Seen) -> None:
        ports = self._options.ports.split(",")
        url = f"http://127.0.0.1:{ports[seen.number % len(ports)]}/v1/chat/completions"
        outcome = "none"
        try:
            async with self._client.stream("POST", url, json=self._body(seen.kind)) as response:
                seen.status = response.status_code
                seen.request_id = response.headers.get("x-request-id", "").replace("-", "")
                outcome = "cut" if response.status_code == 200 else "refused"
                outcome = await self._read(response, seen) or outcome
        except httpx.HTTPError as error:
            seen.error = type(error).__name__
        seen.ended_at, seen.outcome = time.monotonic(), outcome
        seen.stall_seconds = max(seen.stall_seconds, seen.ended_at - seen.began_at if outcome == "none" else 0.0)

    async def _read(self, response: httpx.Response, seen: Seen) -> str:
        """How it went where it went well; nothing else."""
        leaves_after = self._chance.randint(1, 5) if self._chance.random() < self._options.leaving else None
        last, tail, pieces = seen.began_at, b"", 0
        async for piece in response.aiter_raw():
            now = time.monotonic()
            seen.stall_seconds, last = max(seen.stall_seconds, now - last), now
            tail, pieces = (tail + piece)[-40:], pieces + 1
            if seen.kind == "stream" and pieces == leaves_after:
                return "left"
        if response.status_code == 200 and (seen.kind == "whole" or tail.rstrip().endswith(b"data: [DONE]")):
            return "ended"
        if response.status_code != 200:
            seen.error = tail.decode("utf-8", "replace")
        return ""

    def _body(self, kind: str) -> dict[str, Any]:
        chunks, pace_us = self._options.chunks, self._options.pace_ms * 1000
        prompt = f"[bench chunks={chunks} pace_us={pace_us} bytes=40 first_us=0] Tell me what a gateway is for."
        body: dict[str, Any] = {"model": "bench-model", "messages": [{"role": "user", "content": prompt}]}
        return body | ({"stream": True, "stream_options": {"include_usage": True}} if kind == "stream" else {})


async def run(options: argparse.Namespace) -> None:
    headers = {"authorization": f"Bearer {options.key}"}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1000)
    with options.out.open("a") as out:
        async with httpx.AsyncClient(
            headers=headers, timeout=PATIENCE_SECONDS, limits=limits, trust_env=False
        ) as client:
            clients = Clients(options, client, out)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, clients.stopping.set)
            await clients.run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ports", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--whole", type=int, default=8, help="clients that ask for whole answers")
    parser.add_argument("--streams", type=int, default=12, help="clients that ask for streams")
    parser.add_argument("--chunks", type=int, default=40)
    parser.add_argument("--pace-ms", type=int, default=50)
    parser.add_argument("--leaving", type=float, default=0.1, help="part of the streams that their client leaves")
    parser.add_argument("--ramp", type=float, default=1.0, help="seconds over which the clients begin")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
