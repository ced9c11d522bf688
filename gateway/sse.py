"""Server-sent events without I/O: bytes in, whole events out, nothing decoded on the way.

Lines end with LF, CRLF or CR, and with nothing else: a model's text may hold U+2028 and the like.
"""

from __future__ import annotations

import re

# Two line ends in a row. Atomic, so that the CR and LF of one CRLF never count as two.
BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
LINE_END = re.compile(rb"\r\n|\n|\r")
# As numbers: whether a byte is in bytes is told much faster of a number than of bytes.
LF, CR = 0x0A, 0x0D


class EventTooLarge(ValueError):
    """One event is longer than the splitter may hold."""


class EventSplitter:
    """Cuts a byte stream at each blank line. What is not yet a whole event stays here.

    Events come without blank lines before them and end in LF LF: how the stream was cut never shows, not even where
    a cut fell between the CR and the LF of the last line end.
    """

    def __init__(self, *, max_event_bytes: int = 64 * 1024 * 1024) -> None:
        self._rest = bytearray()
        self._scanned = 0
        self._has_cr = False
        self._max_event_bytes = max_event_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """The events that `data` completes, each with a closing blank line."""
        if not self._rest and data.endswith(b"\n\n") and CR not in data and data.find(b"\n\n\n") < 0 and data[0] != LF:
            # What servers send: whole events, one or a few at once.
            if data.count(b"\n\n") == 1:
                return [data]
            return [event + b"\n\n" for event in data[:-2].split(b"\n\n")]
        self._has_cr = CR in data or (self._has_cr and bool(self._rest))
        self._rest += data
        events = []
        start = 0
        while found := self._blank_line(max(self._scanned, start)):
            begin, end = found
            if event := bytes(self._rest[start:begin]).lstrip(b"\r\n"):
                events.append(event + b"\n\n")
            start = end
        if start:
            del self._rest[:start]
        # A long line in many pieces is looked at once, not once a piece.
        self._scanned = max(0, len(self._rest) - 3)
        if len(self._rest) > self._max_event_bytes:
            raise EventTooLarge(f"an event of more than {self._max_event_bytes} bytes")
        return events

    def _blank_line(self, start: int) -> tuple[int, int] | None:
        """Where the first one from there begins and ends."""
        if not self._has_cr:
            # Thirty times as fast as the expression, which a gigabyte in a few long lines would keep busy for a minute.
            begin = self._rest.find(b"\n\n", start)
            return (begin, begin + 2) if begin >= 0 else None
        match = BLANK_LINE.search(self._rest, start)
        return match.span() if match else None

    @property
    def is_between(self) -> bool:
        """Whether all that came was whole events."""
        return not self._rest

    def rest(self) -> bytes:
        """What came after the last whole event."""
        return bytes(self._rest)


def is_one_event(data: bytes) -> bool:
    """Whether it is one whole event of one data line, ended in LF LF, as most are."""
    return data.startswith(b"data:") and data.endswith(b"\n\n") and data.count(b"\n") == 2 and CR not in data


def event_data(event: bytes) -> bytes:
    """The event's data lines joined by LF, without blanks around; empty for comments and events without data."""
    if is_one_event(event):
        return event[5:].strip()
    lines = []
    for line in LINE_END.split(event):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines).strip()


def replace_data(event: bytes, data: bytes) -> bytes:
    """The event with `data` for its data lines; its other lines (`event:`, `id:`, comments) stay."""
    if is_one_event(event):
        return data_event(data)
    others = [line for line in LINE_END.split(event) if line and line.partition(b":")[0] != b"data"]
    return b"\n".join([*others, data_event(data)])


def data_event(data: bytes) -> bytes:
    """One event holding `data`, which has no line ends (JSON has none)."""
    return b"data: %s\n\n" % data
