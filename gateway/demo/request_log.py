"""One JSON line a request, appended when it ends or is cut.

This is the backend's own account of what it worked, kept apart from whatever the gateway
in front of it records, so that the two can be compared.
"""

import os
from pathlib import Path
from typing import Any

import orjson


class RequestLog:
    def __init__(self, path: Path | None) -> None:
        self._descriptor = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, line: dict[str, Any]) -> None:
        # One write(2) a line: readers and parallel writers never see half of one.
        if self._descriptor is not None:
            os.write(self._descriptor, orjson.dumps(line) + b"\n")

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
