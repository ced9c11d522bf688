"""One accepted call: its id, its caller, what it has used so far, and its record, made exactly once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

import orjson

from billing.journal import JournalFull
from billing.models import Outcome
from gateway.caller import Caller
from gateway.errors import UpstreamSaturated
from gateway.usage import TokenCounts, read_usage

# An upstream's usage object is kept as it came unless it is absurdly large.
MAX_USAGE_BYTES = 16_384
# Where usage has to be guessed: bytes of request text per prompt token, a cautious average.
BYTES_PER_TOKEN = 4


class RecordLog(Protocol):
    """Where records go; the journal."""

    def start(self, request_id: str, json: bytes) -> None: ...
    def finish(self, request_id: str, json: bytes) -> None: ...


def new_request_id() -> str:
    """A time-ordered UUID (version 7): neighbours in time are neighbours in the index."""
    random = os.urandom(10).hex()
    moment = f"{time.time_ns() // 1_000_000:012x}"
    variant = "89ab"[int(random[3], 16) & 3]
    return f"{moment[:8]}-{moment[8:]}-7{random[:3]}-{variant}{random[4:7]}-{random[7:19]}"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def timestamp(moment: float) -> str:
    """A time as the database takes it. Calls end and begin in a few seconds at a time, which are formatted once."""
    second, micros = divmod(int(moment * 1_000_000), 1_000_000)
    return f"{_second(second)}.{micros:06d}"


def _kept(usage: Any) -> orjson.Fragment | None:
    """The backend's usage object as JSON for the record, where there is one that can be kept."""
    if not isinstance(usage, dict | list):
        # A bare word is no usage, and SQLite would refuse the record with it.
        return None
    try:
        # In a list, as deep as it will be inside the record.
        json = orjson.dumps([usage])
    except TypeError:
        # Nested too deeply to be written: the record must be, whatever a backend sends.
        return None
    return orjson.Fragment(json[1:-1]) if len(json) <= MAX_USAGE_BYTES else None


@dataclass(slots=True)
class Call:
    caller: Caller
    model: str
    endpoint: str
    stream: bool
    log: RecordLog
    prompt_bytes: int = 0
    request_id: str = field(default_factory=new_request_id)
    upstream: str = ""
    upstream_id: str = ""
    status: int = 0
    error_code: str = ""
    finish_reason: str = ""
    usage: Any = None
    output_chunks: int = 0
    bytes_out: int = 0
    pages: int = 0
    characters: int = 0
    counts: TokenCounts = field(default_factory=TokenCounts)
    estimated: bool = False
    started_at: float = field(default_factory=time.time)
    first_byte_at: float | None = None
    finished: bool = False
    on_finish: Callable[[Call], None] | None = None

    def accept(self) -> None:
        """Leave the start line. Without a journal nothing is served: what is used would be lost."""
        record = self._identity()
        record["status"] = 0
        record["outcome"] = "interrupted"
        record["finished_at"] = record["started_at"]
        try:
            self.log.start(record["id"], orjson.dumps(record))
        except JournalFull:
            raise UpstreamSaturated("The gateway cannot record usage at the moment.", retry_after_seconds=5) from None

    def finish(self, outcome: Outcome) -> None:
        """Write the usage record, once; later calls change nothing."""
        if self.finished:
            return
        self.finished = True
        self.counts, estimated = self._counts()
        self.estimated = self.estimated or estimated
        record = self._identity()
        record.update(self._result(outcome))
        self.log.finish(record["id"], orjson.dumps(record))
        if self.on_finish:
            self.on_finish(self)

    def _identity(self) -> dict[str, Any]:
        caller = self.caller
        return {
            "id": self.request_id.replace("-", ""),
            "team_id": caller.team_id,
            "key_id": caller.key_id,
            "member_id": caller.member_id,
            "source": caller.source,
            "model": self.model,
            "endpoint": self.endpoint,
            "stream": self.stream,
            "started_at": timestamp(self.started_at),
        }

    def _result(self, outcome: Outcome) -> dict[str, Any]:
        counts = self.counts
        return {
            "upstream": self.upstream,
            "upstream_id": self.upstream_id,
            "status": self.status,
            "outcome": outcome.value,
            "error_code": self.error_code,
            "finish_reason": self.finish_reason,
            "prompt_tokens": counts.prompt,
            "cached_tokens": counts.cached,
            "completion_tokens": counts.completion,
            "reasoning_tokens": counts.reasoning,
            "image_tokens": counts.image,
            "usage": _kept(self.usage),
            "pages": self.pages,
            "characters": self.characters,
            "estimated": self.estimated,
            "bytes_out": self.bytes_out,
            "first_byte_at": timestamp(self.first_byte_at) if self.first_byte_at else None,
            "finished_at": timestamp(time.time()),
        }

    def _counts(self) -> tuple[TokenCounts, bool]:
        """What is billed. Output without usage is counted by its chunks and marked, never taken for nothing."""
        counts = read_usage(self.usage)
        if counts.completion or counts.prompt or not self.output_chunks or not 200 <= self.status < 300:
            return counts, False
        return TokenCounts(prompt=self.prompt_bytes // BYTES_PER_TOKEN, completion=self.output_chunks), True
