"""What a body that merely passes by says about usage: JSON or events, however long, with bounded memory. No I/O."""

from __future__ import annotations

import json
import re
from typing import Any

HEAD_BYTES = 65_536
# Usage stands at the end of an answer, and in one of the last events of a stream.
TAIL_BYTES = 32_768
USAGE = re.compile(rb'"usage"\s*:\s*\{')
MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.){1,400}")')
EVENT = re.compile(rb"(?:^|\n)data: ?\{")
# As much of the body as a split "data: {" may need to be seen whole.
OVERLAP = 8


class PassingUsage:
    """Reads the last usage object of a body and its first model name; counts the events of a stream."""

    def __init__(self) -> None:
        self.events = 0
        self.size = 0
        self._head = b""
        self._tail = b""
        self._seam = b"\n"

    def feed(self, data: bytes) -> None:
        self.size += len(data)
        if len(self._head) < HEAD_BYTES:
            self._head += data[: HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + data)[-TAIL_BYTES:] if len(data) < TAIL_BYTES else data[-TAIL_BYTES:]
        seen = self._seam + data
        self.events += sum(1 for match in EVENT.finditer(seen) if match.end() > len(self._seam))
        self._seam = seen[-OVERLAP:]

    @property
    def model(self) -> str:
        return model_in(self._head)

    @property
    def usage(self) -> dict[str, Any] | None:
        return _last_usage(self._tail) or _last_usage(self._head)


def model_in(body: bytes) -> str:
    """The first model name in JSON text, empty where there is none."""
    if match := MODEL.search(body):
        try:
            return str(json.loads(match[1]))[:200]
        except ValueError:
            pass
    return ""


def _last_usage(text: bytes) -> dict[str, Any] | None:
    for match in reversed(list(USAGE.finditer(text))):
        try:
            found, _ = json.JSONDecoder().raw_decode(text[match.end() - 1 :].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            # Cut off in the middle: the one before is whole.
            continue
        if isinstance(found, dict):
            return found
    return None
