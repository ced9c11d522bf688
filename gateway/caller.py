"""Who makes a call: what the relay and the meter need to know of a credential."""

from __future__ import annotations

from dataclasses import dataclass

from billing.models import Source


@dataclass(frozen=True, slots=True)
class Caller:
    """`key_id` is 0 for a browser session, `member_id` the key's maker or the person at the browser (0: gone).

    `portable`: requests are adapted to the model (`gateway.portable`) unless they say otherwise themselves.
    """

    team_id: int
    key_id: int
    member_id: int
    source: Source
    portable: bool = False
