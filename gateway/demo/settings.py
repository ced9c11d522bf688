"""What one demo backend is told at its start."""

from dataclasses import dataclass, field
from pathlib import Path

from gateway.catalog import Catalog, load


@dataclass(frozen=True, slots=True)
class Settings:
    catalog: Catalog = field(default_factory=load)
    pace_seconds: float = 0.02  # between two streamed tokens
    log: Path | None = None
    cached_blocks: int = 65_536  # of 16 tokens, over all models
