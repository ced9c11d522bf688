"""What stands in for the journal where a test reads records as soon as they are made."""

from __future__ import annotations

from typing import Any

import orjson

from billing.journal import JournalFull
from billing.models import Source
from gateway.call import Call
from gateway.caller import Caller

CALLER = Caller(team_id=3, key_id=5, member_id=7, source=Source.API)


class Ledger:
    """`started` and `finished` hold the records in the order they were noted."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.started: list[dict[str, Any]] = []
        self.finished: list[dict[str, Any]] = []
        self._is_full = is_full

    def start(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        self.started.append(_read(request_id, json))

    def write(self, request_id: str) -> None:
        if self._is_full:
            raise JournalFull("the journal cannot be written")

    def finish(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        self.finished.append(_read(request_id, json))

    @property
    def record(self) -> dict[str, Any]:
        (record,) = self.finished
        return record


def _read(request_id: str, json: bytes) -> dict[str, Any]:
    record: dict[str, Any] = orjson.loads(json)
    assert record["id"] == request_id
    return record


def new_call(ledger: Ledger | None = None, **fields: Any) -> Call:
    settled: dict[str, Any] = {"caller": CALLER, "model": "DeepSeek-V4-Flash", "endpoint": "chat", "stream": True}
    return Call(**settled | {"log": ledger or Ledger()} | fields)
