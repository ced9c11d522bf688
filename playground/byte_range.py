"""The `Range` header of a request for part of a file; players jump with it, and some play nothing without."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=(\d{0,15})-(\d{0,15})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """`first` and `last` are both included. An empty range cannot be satisfied."""

    first: int
    last: int

    @property
    def length(self) -> int:
        return max(0, self.last - self.first + 1)


def parse_range(header: str, *, size: int) -> ByteRange | None:
    """None where the whole is to be sent: no header, several ranges, or one that makes no sense."""
    match = _RANGE.fullmatch(header.strip())
    if match is None or match[0] == "bytes=-":
        return None
    if not match[1]:
        return ByteRange(max(0, size - int(match[2])), size - 1)
    first, last = int(match[1]), int(match[2]) if match[2] else size - 1
    if last < first:
        return None if match[2] else ByteRange(first, first - 1)
    return ByteRange(first, min(last, size - 1))
