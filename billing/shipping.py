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

from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connection, transaction

from billing.bulk import insert_json
from billing.journal import Journal, JournalFull, Line, Segment, abandoned, parse_lines
from billing.models import UsageRecord
from billing.tasks import kick_rating

log = logging.getLogger("billing.shipping")

INTERVAL_SECONDS = 0.05
BATCH_BYTES = 1024 * 1024
ADOPT_EVERY_SECONDS = 5.0
RETRY_SECONDS = 1.0
# What the database's own failures look like, as opposed to a row it cannot take.
AWAY = (OperationalError, InterfaceError)


def ship_lines(lines: list[Line], *, rejected_file: Path) -> None:
    """Insert the finished ones. A row that the database refuses is set aside in a file, never retried for ever."""
    rows = [line.json for line in lines if line.finished]
    if not rows:
        return
    try:
        _insert(rows)
    except AWAY:
        raise
    except DatabaseError:
        if len(rows) == 1:
            log.exception("a usage record cannot be stored; it is kept in %s", rejected_file)
            with rejected_file.open("ab") as file:
                file.write(rows[0] + b"\n")
            return
        half = len(lines) // 2
        ship_lines(lines[:half], rejected_file=rejected_file)
        ship_lines(lines[half:], rejected_file=rejected_file)


def _insert(rows: list[bytes]) -> None:
    with transaction.atomic():
        insert_json(UsageRecord, b"[" + b",".join(rows) + b"]", on_conflict="DO NOTHING")


def adopt(directory: Path) -> int:
    """Ship the segments that dead processes left; requests they cut are recorded as interrupted."""
    segments = list(abandoned(directory))
    try:
        lines = [line for segment in segments for line in parse_lines(_contents(segment))]
        finished = {line.request_id for line in lines if line.finished}
        # A start without an end, here or in the database, is a call the crash cut off.
        cut = [line._replace(finished=True) for line in lines if line.request_id not in finished]
        rejected_file = directory / "rejected.jsonl"
        for batch in _batches([line for line in lines if line.finished] + cut):
            ship_lines(batch, rejected_file=rejected_file)
        for segment in segments:
            segment.path.unlink(missing_ok=True)
    finally:
        for segment in segments:
            os.close(segment.descriptor)
    if cut:
        log.warning("recorded %d requests that a stopped process had cut off", len(cut))
    return len(finished) + len(cut)


def _contents(segment: Segment) -> bytes:
    return os.pread(segment.descriptor, segment.size, 0)


def _batches(lines: list[Line]) -> list[list[Line]]:
    return [lines[start : start + 1000] for start in range(0, len(lines), 1000)]


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
        while not self._stop.wait(INTERVAL_SECONDS):
            self._turn()
        self._turn()
        connection.close()

    def _turn(self) -> None:
        try:
            close_old_connections()
            shipped = self._ship_segments()
            shipped += self._adopt_if_due()
            self._sync_if_due()
            self.last_error = ""
        except JournalFull as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001 -- the thread must outlive whatever the database does
            self._failed(error)
            connection.close()
        else:
            if shipped:
                kick_rating()

    def _ship_segments(self) -> int:
        self.journal.retry_unwritten()
        count = 0
        for segment in list(self.journal.segments):
            while segment.unshipped_bytes:
                lines, offset = self.journal.read(segment, limit_bytes=BATCH_BYTES)
                if offset == segment.shipped:
                    break
                ship_lines(lines, rejected_file=self.journal.directory / "rejected.jsonl")
                count += sum(line.finished for line in lines)
                self.journal.shipped(segment, offset)
            else:
                self.journal.shipped(segment, segment.shipped)
        return count

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
