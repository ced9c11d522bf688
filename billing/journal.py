"""The journal: where a request's usage is safe before its answer ends.

One folder, segments named `*.journal`, each held by a file lock while its process lives. Two kinds of lines:

    S <crc32> <request id> <json>    accepted: the record as it stands if the process dies now ("interrupted")
    F <crc32> <request id> <json>    finished: the usage record

`crc32` is eight hex digits over the line's letter and what follows the digits; the request id is 32 hex digits; the
JSON is an object of `UsageRecord`'s columns. Lines of requests that take their steps together are one `write(2)`; no
request goes on before its line is written, so a killed process leaves at most one torn line, and what that line told
of had not begun or not ended. Only complete lines with the right checksum are read.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from binascii import hexlify
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple
from zlib import crc32

SEGMENT_BYTES = 16 * 1024 * 1024
SUFFIX = ".journal"
ADOPTION_LOCK = "adoption.lock"
# Where a line's JSON begins, behind letter, checksum and id.
RECORD_AT = 44
_CRC_OF = {kind: crc32(kind) for kind in (b"S", b"F")}

type Fsync = Literal["never", "second", "always"]
# Whether it is an end, whose, and the line.
type _Noted = tuple[bool, str, bytes]


class JournalFull(OSError):
    """A line could not be written: the disk is full or gone."""


class Line(NamedTuple):
    finished: bool
    request_id: str
    json: bytes


@dataclass(slots=True)
class Segment:
    path: Path
    descriptor: int
    size: int = 0
    shipped: int = 0
    synced: int = 0
    # A full disk cut a line of it short: its lines have to be looked at one by one.
    torn: bool = False
    # Requests that began here and have not finished: the segment must outlive them.
    open: set[str] = field(default_factory=set)

    @property
    def unshipped_bytes(self) -> int:
        return self.size - self.shipped


class Journal:
    """This process's segments. The event loop appends; the shipper's thread reads, removes and retries."""

    def __init__(self, directory: Path, *, fsync: Fsync = "second", segment_bytes: int = SEGMENT_BYTES) -> None:
        self.directory = directory
        self._fsync = fsync
        self._segment_bytes = segment_bytes
        self._sequence = 0
        self._segment_of: dict[str, Segment] = {}
        self._torn = False
        # Lines that go with the next write; starts that could not be written, until their requests ask; ends, until
        # there is room.
        self._noted: deque[_Noted] = deque()
        self._refused: set[str] = set()
        self._unwritten: list[bytes] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self.segments: list[Segment] = [self._new_segment()]

    def start(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        """Note an accepted request. Raises JournalFull: then it must not be served.

        Not `alone` the line is only noted: `write` writes it with those of others, and tells.
        """
        self._note(b"S", request_id, json)
        if alone:
            self.write(request_id)

    def finish(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        """Note the usage record. With the disk full it is kept in memory and tried again with the next line."""
        self._note(b"F", request_id, json)
        if alone:
            self.write_noted()
        # Of a start that could not be written and was never asked after.
        self._refused.discard(request_id)

    def write(self, request_id: str) -> None:
        """All that was noted is written when this returns. Raises JournalFull where this request's start could not be:
        then it must not be served."""
        # The shipper's thread may have taken the line and be about to write it.
        if self._noted or self._lock.locked():
            self.write_noted()
        if request_id in self._refused:
            self._refused.remove(request_id)
            raise JournalFull("the journal cannot be written")

    def write_noted(self) -> None:
        with self._lock:
            noted = [self._noted.popleft() for _ in range(len(self._noted))]
            if not noted:
                return
            written = self._append(b"".join([line for _, _, line in noted]))
            end = 0
            for finished, request_id, line in noted:
                end += len(line)
                if end > written:
                    self._did_not_take(finished, request_id, line)
                elif finished:
                    self._closed(request_id)
                else:
                    self._opened(request_id)

    def retry_unwritten(self) -> None:
        """Write what a full disk refused; JournalFull while it still does."""
        while self._unwritten:
            with self._lock:
                line = self._unwritten[0]
                if self._append(line) < len(line):
                    raise JournalFull("the journal cannot be written")
                self._unwritten.pop(0)
                self._closed(line[11:43].decode("ascii"))

    @property
    def backlog_bytes(self) -> int:
        return sum(segment.unshipped_bytes for segment in self.segments) + sum(map(len, self._unwritten))

    def read(self, segment: Segment, *, limit_bytes: int) -> tuple[list[bytes], int]:
        """The records of finished requests from where shipping stopped, and the offset behind them."""
        data = os.pread(segment.descriptor, min(limit_bytes, segment.unshipped_bytes), segment.shipped)
        while data and b"\n" not in data and segment.shipped + len(data) < segment.size:
            limit_bytes *= 2
            data = os.pread(segment.descriptor, min(limit_bytes, segment.unshipped_bytes), segment.shipped)
        whole = data.rfind(b"\n") + 1
        if not whole and segment is not self.segments[-1]:
            # A line torn by a full disk ends this segment; it stands whole in the next one.
            return [], segment.size
        data = data[:whole]
        if segment.torn:
            records = [line.json for line in parse_lines(data) if line.finished]
        else:
            # This process wrote them a moment ago, each as a whole: checksums are for what a crash leaves.
            records = [line[RECORD_AT:] for line in data.split(b"\n") if line[:1] == b"F"]
        return records, segment.shipped + whole

    def release(self, segment: Segment) -> None:
        """Remove the segment if nobody needs it any more."""
        if segment is self.segments[-1] or segment.unshipped_bytes or segment.open:
            return
        self.segments.remove(segment)
        segment.path.unlink(missing_ok=True)
        os.close(segment.descriptor)

    def sync(self) -> None:
        """Force to disk what was written since the last time, in the segments before the newest too."""
        if self._fsync != "second":
            return
        for segment in list(self.segments):
            if segment.synced < (size := segment.size):
                os.fsync(segment.descriptor)
                segment.synced = size

    def close(self) -> None:
        """Let go. Segments with nothing left to ship are removed, the others are for the next process."""
        self.write_noted()
        for segment in self.segments:
            if not segment.unshipped_bytes and not segment.open and not self._unwritten:
                segment.path.unlink(missing_ok=True)
            os.close(segment.descriptor)
        self.segments.clear()

    def _note(self, kind: bytes, request_id: str, json: bytes) -> None:
        self._noted.append((kind == b"F", request_id, _line(kind, request_id, json)))

    def _opened(self, request_id: str) -> None:
        segment = self._segment_of[request_id] = self.segments[-1]
        segment.open.add(request_id)

    def _did_not_take(self, finished: bool, request_id: str, line: bytes) -> None:
        if finished:
            self._unwritten.append(line)
        else:
            self._refused.add(request_id)

    def _closed(self, request_id: str) -> None:
        segment = self._segment_of.pop(request_id, None)
        if segment is not None:
            segment.open.discard(request_id)

    def _segment_to_write(self) -> Segment:
        segment = self.segments[-1]
        if segment.size >= self._segment_bytes:
            segment = self._new_segment()
            self.segments.append(segment)
            self._torn = False
        return segment

    def _append(self, lines: bytes) -> int:
        """How many of the bytes are in the journal: all, unless the disk is full."""
        try:
            segment = self._segment_to_write()
            # A half-written line is ended, so that the next one starts on its own, and spoilt: it may have lacked its
            # end alone.
            before = b"!\n" if self._torn else b""
            written = os.write(segment.descriptor, before + lines)
            segment.size += written
            self._torn = written < len(before) + len(lines)
            segment.torn = segment.torn or self._torn
            if self._fsync == "always":
                os.fsync(segment.descriptor)
        except OSError:
            return 0
        return written - len(before)

    def _new_segment(self) -> Segment:
        self._sequence += 1
        path = self.directory / f"{time.time_ns()}-{os.getpid()}-{self._sequence}{SUFFIX}"
        # Locked before it has the name that others look for, or they would adopt it as a dead process's.
        fresh = path.with_suffix(".new")
        try:
            descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                fresh.rename(path)
            except OSError:
                os.close(descriptor)
                raise
        except OSError as error:
            raise JournalFull(error.errno, "the journal has no room for a new segment") from error
        return Segment(path, descriptor)


@contextmanager
def adopting(directory: Path) -> Iterator[bool]:
    """Whether the caller may adopt now. One at a time: two would share out a dead process's segments, and whoever
    got a start without its end would take the request for one that was cut."""
    descriptor = os.open(directory / ADOPTION_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def abandoned(directory: Path) -> Iterator[Segment]:
    """Segments whose process is gone, oldest first, locked for the caller, who closes their descriptors."""
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        status = os.fstat(descriptor)
        if not status.st_nlink:
            # Its live owner was done with it and removed it a moment ago.
            os.close(descriptor)
            continue
        yield Segment(path, descriptor, size=status.st_size)


def parse_lines(data: bytes) -> Iterator[Line]:
    """Whole and undamaged lines; others are passed over."""
    for raw in data.split(b"\n"):
        kind, checksum, rest = raw[:2], raw[2:11], raw[11:]
        if kind not in (b"S ", b"F ") or len(rest) < 34:
            continue
        if b"%08x " % crc32(rest, _CRC_OF[kind[:1]]) == checksum:
            yield Line(kind == b"F ", rest[:32].decode("ascii"), rest[33:])


def _line(kind: bytes, request_id: str, json: bytes) -> bytes:
    name = b"%s " % request_id.encode("ascii")
    checksum = hexlify(crc32(json, crc32(name, _CRC_OF[kind])).to_bytes(4))
    return b"".join((kind, b" ", checksum, b" ", name, json, b"\n"))
