"""Who makes a call, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from zoneinfo import ZoneInfo

import orjson

from billing.models import Source
from billing.quota import PeriodKind


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a key or a session may do. Limits of 0 are off; empty scopes allow everything.

    Points are picopoints a period; `period` is day, month or rolling, in the team's `zone`.
    """

    key_rpm: int = 0
    key_concurrency: int = 0
    team_rpm: int = 0
    team_points_ppt: int = 0
    key_points_ppt: int = 0
    period: PeriodKind = "day"
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    models: frozenset[str] = frozenset()
    endpoints: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    portable: bool = False

    @property
    def is_scoped(self) -> bool:
        return bool(self.models or self.endpoints or self.networks)


@dataclass(frozen=True, slots=True)
class Caller:
    """`key_id` is 0 for a browser session, `member_id` the key's maker or the person at the browser (0: gone)."""

    team_id: int
    key_id: int
    member_id: int
    source: Source
    allowance: Allowance = field(default=Allowance(), repr=False)
    # Those that each of its records has, as the inside of a JSON object.
    columns: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = ("team_id", "key_id", "member_id", "source")
        object.__setattr__(self, "columns", orjson.dumps({name: getattr(self, name) for name in names})[1:-1])

    @property
    def portable(self) -> bool:
        return self.allowance.portable
