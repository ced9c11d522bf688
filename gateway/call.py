"""One accepted call: its id, its caller, what it has used so far, and its record, made exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from random import getrandbits
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
# Of a UUID's 128 bits: four say its version, two its variant, 48 above them the time, the rest is random.
_VERSION_7, _VARIANT, _62_BITS = 7 << 76, 1 << 63, (1 << 62) - 1


class RecordLog(Protocol):
    """Where records go; the journal."""

    def start(self, request_id: str, json: bytes, *, alone: bool = True) -> None: ...
    def finish(self, request_id: str, json: bytes, *, alone: bool = True) -> None: ...
    def write(self, request_id: str) -> None: ...


def new_request_id() -> str:
    """A time-ordered UUID (version 7): neighbours in time are neighbours in the index."""
    random, moment = getrandbits(74), time.time_ns() // 1_000_000
    digits = f"{moment << 80 | _VERSION_7 | random >> 62 << 64 | _VARIANT | random & _62_BITS:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


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


@dataclass(slots=True, kw_only=True, eq=False)
class Call:
    caller: Caller
    model: str
    endpoint: str
    stream: bool
    log: RecordLog
    request_id: str = field(default_factory=new_request_id)
    started_at: float = field(default_factory=time.time)
    on_finish: Callable[[Call], None] | None = None
    upstream: str = ""
    upstream_id: str = ""
    status: int = 0
    error_code: str = ""
    finish_reason: str = ""
    usage: Any = None
    prompt_bytes: int = 0
    output_chunks: int = 0
    bytes_out: int = 0
    pages: int = 0
    characters: int = 0
    counts: TokenCounts = NOTHING_COUNTED
    estimated: bool = False
    first_byte_at: float | None = None
    finished: bool = False
    # The record's columns that were known at the start.
    _identity: bytes = field(default=b"", init=False)

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

    @property
    def record_id(self) -> str:
        """The call's id as the journal and the database write it, 32 hex digits."""
        return self.request_id.replace("-", "")

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
            "usage": usage if isinstance(usage, dict | list) else None,
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
