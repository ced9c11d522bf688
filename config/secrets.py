"""The signing key: from the environment, or made once and kept in the data folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def secret_key(configured: str, *, data_dir: Path) -> str:
    if configured:
        return configured
    path = data_dir / "secret_key"
    try:
        # O_EXCL: of two processes that start together one writes, the other reads.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii")
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(50))
    return path.read_text(encoding="ascii")
