"""From the journal to the database: in batches, each one transaction, each record exactly once.

The request id is the table's primary key and conflicts are ignored, so a batch that was committed but not
noted as shipped is harmless when it comes again. One path for good days and bad ones: while the database is
away nothing is read from the journal, which grows.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

from django.db import DataError, IntegrityError, connection

from billing.bulk import insert_json
from billing.journal import Journal, Line, Segment, abandoned, adopting, parse_lines
from billing.models import UsageRecord
from billing.tasks import kick_rating
from config.scheduling import let_others_first

log = logging.getLogger("billing.shipping")

# Each turn, however little there is, costs the event loop something.
INTERVAL_SECONDS = 0.05
BATCH_BYTES = 1024 * 1024
# PostgreSQL may share its cores with those who answer, and works on a record for 25 us: between pieces it lets them go
# on. Few pieces where there is much to ship, for each is a transaction.
PIECE_RECORDS = 16
PIECES = 6
PAUSE_SECONDS = 0.001
ADOPT_EVERY_SECONDS = 5.0
RETRY_SECONDS = 1.0
# A row it cannot take. All else is the database's own failure (away, not migrated, full), and the rows wait for it.
POISON = (DataError, IntegrityError)


def ship(rows: list[bytes], *, rejected_file: Path) -> None:
    """Insert records. A row that the database refuses is set aside in a file, never retried for ever."""
    if not rows:
        return
    try:
        # One statement, which is a transaction by itself: the interpreter changes hands with the event loop's thread at
        # each answer of the database.
        insert_json(UsageRecord, b"[" + b",".join(rows) + b"]", on_conflict="DO NOTHING")
    except POISON:
        if len(rows) == 1:
            log.exception("a usage record cannot be stored; it is kept in %s", rejected_file)
            with rejected_file.open("ab") as file:
                file.write(rows[0] + b"\n")
            return
        half = len(rows) // 2
        ship(rows[:half], rejected_file=rejected_file)
        ship(rows[half:], rejected_file=rejected_file)


def adopt(directory: Path) -> int:
    """Ship the segments that dead processes left; requests they cut are recorded as interrupted.

    One segment at a time: after a day without a database there are many. Those that hold starts without an end so
    far stay locked and in place until the last one is read.
    """
    with adopting(directory) as alone:
        return _adopt(directory) if alone else 0


def _adopt(directory: Path) -> int:
    rejected_file = directory / "rejected.jsonl"
    begun: dict[str, Line] = {}
    kept: list[Segment] = []
    count = 0
    try:
        for segment in abandoned(directory):
            kept.append(segment)
            lines = list(parse_lines(os.pread(segment.descriptor, segment.size, 0)))
            _ship_all([line.json for line in lines if line.finished], rejected_file=rejected_file)
            count += sum(line.finished for line in lines)
            begun |= {line.request_id: line for line in lines if not line.finished}
            for line in lines:
                if line.finished:
                    begun.pop(line.request_id, None)
            if not begun:
                _drop(kept)
        # A start without an end, here or in the database, is a call the crash cut off.
        _ship_all([line.json for line in begun.values()], rejected_file=rejected_file)
        _drop(kept)
    finally:
        for segment in kept:
            os.close(segment.descriptor)
    if begun:
        log.warning("recorded %d requests that a stopped process had cut off", len(begun))
    return count + len(begun)


def _ship_all(rows: list[bytes], *, rejected_file: Path) -> None:
    for start in range(0, len(rows), 1000):
        ship(rows[start : start + 1000], rejected_file=rejected_file)


def _drop(segments: list[Segment]) -> None:
    for segment in segments:
        segment.path.unlink(missing_ok=True)
        os.close(segment.descriptor)
    segments.clear()


class Shipper:
    """A thread of the web process that ships its journal and adopts those of dead processes."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.last_error = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shipper", daemon=True)
        self._adopted_at = 0.0
        self._synced_at = 0.0

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_seconds: float = 5.0) -> None:
        """Ship what is left, if the database takes it in time."""
        self._stop.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        let_others_first()
        while not self._stop.wait(INTERVAL_SECONDS):
            self._turn()
        self._turn()
        connection.close()

    def _turn(self) -> None:
        """Each step is tried whatever became of the others; shipping may make the room that the last one needs."""
        failure: Exception | None = None
        # A request that was cancelled right after it noted its end has left the writing to this.
        for step in (self.journal.write_noted, self._sync_if_due, self._ship, self.journal.retry_unwritten):
            try:
                step()
            except Exception as error:  # noqa: BLE001 -- the thread must outlive whatever database and disk do
                failure = failure or error
        if failure:
            connection.close()
            self._failed(failure)
        else:
            self.last_error = ""

    def _ship(self) -> None:
        # The thread keeps its connection until it fails: closing SQLite's last one writes a checkpoint each time.
        if self._ship_segments() + self._adopt_if_due():
            kick_rating()

    def _ship_segments(self) -> int:
        count = 0
        for segment in list(self.journal.segments):
            # What comes while this runs is for the next turn, or busy times would ship it line by line.
            end = segment.size
            while segment.shipped < end:
                records, offset = self.journal.read(segment, limit_bytes=BATCH_BYTES)
                if offset == segment.shipped:
                    break
                self._ship_in_pieces(records)
                count += len(records)
                segment.shipped = offset
            self.journal.release(segment)
        return count

    def _ship_in_pieces(self, records: list[bytes]) -> None:
        # SQLite works in this thread, which lets others first.
        pieces = 1 if connection.vendor == "sqlite" else PIECES
        size = max(PIECE_RECORDS, -(-len(records) // pieces))
        for start in range(0, len(records), size):
            if start:
                time.sleep(PAUSE_SECONDS)
            ship(records[start : start + size], rejected_file=self.journal.directory / "rejected.jsonl")

    def _adopt_if_due(self) -> int:
        if time.monotonic() - self._adopted_at < ADOPT_EVERY_SECONDS:
            return 0
        count = adopt(self.journal.directory)
        self._adopted_at = time.monotonic()
        return count

    def _sync_if_due(self) -> None:
        if time.monotonic() - self._synced_at >= 1.0:
            self._synced_at = time.monotonic()
            self.journal.sync()

    def _failed(self, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if reason != self.last_error:
            log.error("usage records wait in the journal: %s", reason)
        self.last_error = reason
        self._stop.wait(RETRY_SECONDS)
