"""One accepted call: its id, its caller, what it has used so far, and its record, made exactly once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

import orjson

from billing.journal import JournalFull
from billing.models import Outcome
from gateway.caller import Caller
from gateway.errors import UpstreamSaturated
from gateway.usage import NOTHING_COUNTED, TokenCounts, read_usage

# An upstream's usage object is kept as it came unless it is absurdly large.
MAX_USAGE_BYTES = 16_384
# Where usage has to be guessed: bytes of request text per prompt token, a cautious average.
BYTES_PER_TOKEN = 4
TAILS_AT_ONCE = 256


class RecordLog(Protocol):
    """Where records go; the journal."""

    def start(self, request_id: str, json: bytes, *, alone: bool = True) -> None: ...
    def finish(self, request_id: str, json: bytes, *, alone: bool = True) -> None: ...
    def write(self, request_id: str) -> None: ...


def _tails() -> Iterator[str]:
    """Ends of ids, behind the time: the version, the variant, and 72 random bits."""
    digits = os.urandom(9 * TAILS_AT_ONCE).hex()
    for at in range(0, len(digits), 18):
        yield f"7{digits[at : at + 3]}-8{digits[at + 3 : at + 6]}-{digits[at + 6 : at + 18]}"


# Made in advance, many at a time; two processes must not use the same ones.
_tails_left: list[str] = []
os.register_at_fork(after_in_child=_tails_left.clear)


def new_request_id() -> str:
    """A time-ordered UUID (version 7): neighbours in time are neighbours in the index."""
    if not _tails_left:
        _tails_left.extend(_tails())
    moment = f"{time.time_ns() // 1_000_000:012x}"
    return f"{moment[:8]}-{moment[8:]}-{_tails_left.pop()}"


@lru_cache(maxsize=64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%d %H:%M:%S")


def timestamp(moment: float) -> str:
    """A time as the database takes it. Calls end and begin in a few seconds at a time, which are formatted once."""
    second, micros = divmod(int(moment * 1_000_000), 1_000_000)
    return f"{_second(second)}.{str(1_000_000 + micros)[1:]}"


@lru_cache(maxsize=4096)
def _what(model: str, endpoint: str, stream: bool) -> bytes:
    """The columns that a call shares with many others, as the inside of a JSON object."""
    return orjson.dumps({"model": model, "endpoint": endpoint, "stream": stream})[1:-1]


@dataclass(slots=True, eq=False)
class Call:
    caller: Caller
    model: str
    endpoint: str
    stream: bool
    log: RecordLog
    request_id: str = field(default_factory=new_request_id)
    started_at: float = field(default_factory=time.time)
    on_finish: Callable[[Call], None] | None = None
    upstream: str = field(default="", init=False)
    upstream_id: str = field(default="", init=False)
    status: int = field(default=0, init=False)
    error_code: str = field(default="", init=False)
    finish_reason: str = field(default="", init=False)
    usage: Any = field(default=None, init=False)
    prompt_bytes: int = field(default=0, init=False)
    output_chunks: int = field(default=0, init=False)
    bytes_out: int = field(default=0, init=False)
    pages: int = field(default=0, init=False)
    characters: int = field(default=0, init=False)
    counts: TokenCounts = field(default=NOTHING_COUNTED, init=False)
    estimated: bool = field(default=False, init=False)
    first_byte_at: float | None = field(default=None, init=False)
    finished: bool = field(default=False, init=False)
    # The call's id as the journal and the database write it, 32 hex digits.
    record_id: str = field(init=False)
    # The record's columns that were known at the start.
    _identity: bytes = field(default=b"", init=False)

    def __post_init__(self) -> None:
        self.record_id = self.request_id.replace("-", "")

    def accept(self, *, alone: bool = True) -> None:
        """Leave the start line. Without a journal nothing is served: what is used would be lost.

        Not `alone`, the line is written with others', by `written` at the latest.
        """
        started_at = timestamp(self.started_at).encode("ascii")
        self._identity = identity = self._known_columns(started_at)
        ends = b'{%s,"status":0,"outcome":"interrupted","finished_at":"%s"}' % (identity, started_at)
        self.log.start(self.record_id, ends, alone=False)
        if alone:
            self.written()

    def written(self) -> None:
        """What this call has left is in the journal when this returns. A call whose start is not has never been."""
        try:
            self.log.write(self.record_id)
        except JournalFull:
            self.finished, self.status = True, 503
            if self.on_finish:
                self.on_finish(self)
            raise UpstreamSaturated("The gateway cannot record usage at the moment.", retry_after_seconds=5) from None

    def turned_out(self, *, model: str) -> None:
        """What is passed on unread says its model, and whether it is a stream, after the start line was written."""
        self.model = model
        self._identity = b""

    def finish(self, outcome: Outcome, *, alone: bool = True) -> None:
        """Write the usage record, once; later calls change nothing. Not `alone`, `written` is to be called before the
        answer's end is released."""
        if self.finished:
            return
        self.finished = True
        self.counts, estimated = self._counts()
        self.estimated = self.estimated or estimated
        identity = self._identity or self._known_columns(timestamp(self.started_at).encode("ascii"))
        self.log.finish(self.record_id, b"{%s,%s" % (identity, self._result(outcome)[1:]), alone=alone)
        if self.on_finish:
            self.on_finish(self)

    def _known_columns(self, started_at: bytes) -> bytes:
        """The record's columns known from the start on, as the inside of a JSON object."""
        what = _what(self.model, self.endpoint, self.stream)
        return b'"id":"%s",%s,%s,"started_at":"%s"' % (
            self.record_id.encode("ascii"), self.caller.columns, what, started_at,
        )  # fmt: skip

    def _result(self, outcome: Outcome) -> bytes:
        """The columns known at the end, as a JSON object. A usage object that cannot be kept is left out."""
        counts, usage = self.counts, self.usage
        result = {
            "upstream": self.upstream,
            "upstream_id": self.upstream_id,
            "status": self.status,
            "outcome": outcome._value_,
            "error_code": self.error_code,
            "finish_reason": self.finish_reason,
            "prompt_tokens": counts.prompt,
            "cached_tokens": counts.cached,
            "completion_tokens": counts.completion,
            "reasoning_tokens": counts.reasoning,
            "image_tokens": counts.image,
            # A bare word is no usage, and SQLite would refuse the record with it.
            "usage": usage if isinstance(usage, (dict, list)) else None,
            "pages": self.pages,
            "characters": self.characters,
            "estimated": self.estimated,
            "bytes_out": self.bytes_out,
            "first_byte_at": timestamp(self.first_byte_at) if self.first_byte_at else None,
            "finished_at": timestamp(time.time()),
        }
        try:
            json = orjson.dumps(result)
            if len(json) <= MAX_USAGE_BYTES or len(orjson.dumps(usage)) <= MAX_USAGE_BYTES:
                return json
        except TypeError:
            # Nested too deeply to be written: the record must be, whatever a backend sends.
            pass
        return orjson.dumps({**result, "usage": None})

    def _counts(self) -> tuple[TokenCounts, bool]:
        """What is billed. Output without usage is counted by its chunks and marked, never taken for nothing."""
        counts = read_usage(self.usage)
        if counts.completion or counts.prompt or not self.output_chunks or not 200 <= self.status < 300:
            return counts, False
        return TokenCounts(prompt=self.prompt_bytes // BYTES_PER_TOKEN, completion=self.output_chunks), True
