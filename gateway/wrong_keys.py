"""Guessed keys: an address that sends too many unknown ones is refused for the rest of the minute, before a look-up.

Counted by each process for itself: no guess would ever hit (a key is 192 random bits), so this spares the database, and
a few more tries a minute do not matter. Keys that are known keep working from that address: they need no look-up.
"""

from __future__ import annotations

import time
from ipaddress import IPv6Address, ip_address

from gateway.errors import RateLimited

# Whoever fills this from many addresses begins everybody's minute anew.
MAX_ADDRESSES = 50_000
IPV6_NETWORK_BITS = 64


class WrongKeys:
    def __init__(self, limit: int = 0) -> None:
        """`limit`: unknown keys a minute and address; 0 is off."""
        self._limit = limit
        self._minute = 0
        self._tries: dict[str, int] = {}

    def try_from(self, address: str) -> None:
        """Before a look-up: counted as wrong until it turns out to be right. Raises RateLimited."""
        if not self._limit:
            return
        now = int(time.time())
        if now // 60 != self._minute or len(self._tries) >= MAX_ADDRESSES:
            self._minute, self._tries = now // 60, {}
        network = _network(address)
        tries = self._tries.get(network, 0)
        if tries >= self._limit:
            text = f"Too many unknown keys from your address: at most {self._limit} a minute."
            raise RateLimited(text, code="ip_rate_limit_exceeded", retry_after_seconds=60 - now % 60)
        self._tries[network] = tries + 1

    def was_right(self, address: str) -> None:
        network = _network(address)
        if self._tries.get(network, 0):
            self._tries[network] -= 1


def _network(address: str) -> str:
    """One subscriber has a whole /64 of IPv6."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and not parsed.ipv4_mapped:
        return str(int(parsed) >> (128 - IPV6_NETWORK_BITS))
    return address
