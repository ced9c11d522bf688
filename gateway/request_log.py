"""One line of JSON for each request to the gateway: who, what, how it ended. Never a prompt, an answer or a key."""

from __future__ import annotations

import asyncio
import os

STDERR = 2
FLUSH_SECONDS = 0.2


class RequestLog:
    """Lines are gathered and written together: a system call for each would cost more than the rest of it."""

    def __init__(self, descriptor: int = STDERR) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._lines.append(line)

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            os.write(self._descriptor, b"".join(lines))
