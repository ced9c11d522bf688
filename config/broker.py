"""Celery's broker when everything runs on one machine: kombu's folder of message files, made safe to share.

kombu writes a message under the name by which it is taken, so a worker can take one that is half written
and dies of it. Here a message gets its name when it is whole, and the bindings are read and written under a lock.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import filesystem
from kombu.utils.json import dumps, loads


class Channel(filesystem.Channel):
    def get_table(self, exchange: str) -> Any:
        with self._locked():
            return super().get_table(exchange)

    def _queue_bind(self, *binding: Any) -> None:
        with self._locked():
            super()._queue_bind(*binding)

    def _put(self, queue: str, payload: Any, **kwargs: Any) -> None:  # type: ignore[override]
        name = f"{time.time_ns()}-{uuid.uuid4().hex}.{queue}.msg"
        unfinished = Path(self.data_folder_out, f"{name}.new")
        unfinished.write_text(dumps(payload))
        unfinished.rename(Path(self.data_folder_out, name))

    def _get(self, queue: str, timeout: float | None = None) -> Any:
        folder = Path(self.data_folder_in)
        for file in sorted(folder.glob(f"*.{queue}.msg")):
            taken = file.with_name(f"{file.name}.taken")
            try:
                file.rename(taken)
            except FileNotFoundError:
                # Another worker was first.
                continue
            payload = taken.read_text()
            taken.unlink()
            return loads(payload)
        raise Empty

    def _size(self, queue: str) -> int:
        return sum(1 for _ in Path(self.data_folder_in).glob(f"*.{queue}.msg"))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.control_folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.control_folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


class Transport(filesystem.Transport):
    Channel = Channel
