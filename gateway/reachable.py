"""Which addresses a URL that a team supplied may lead to, asked of the address itself at each new connection.

A name is resolved here and connected to by the address that was checked, so it cannot mean one thing to the check
and another to the socket. docs/decisions/dedicated-endpoints.md gives the rule and its reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from gateway.ssrf import Address, Network, is_public, resolve

# Where clouds hand out credentials to whoever asks from inside: refused even within a network that is allowed.
METADATA = frozenset(map(ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192")))


class AddressRefused(ValueError):
    """The URL leads where no dedicated endpoint may stand: to `address`."""

    def __init__(self, address: str) -> None:
        super().__init__(f"no dedicated endpoint may stand at {address}")
        self.address = address


def may_reach(address: Address, *, allowed: Iterable[Network]) -> bool:
    """Public addresses, and private ones that the installation names; metadata services never."""
    return address not in METADATA and (is_public(address) or any(address in network for network in allowed))


async def checked_addresses(host: str, port: int, *, allowed: Sequence[Network]) -> list[str]:
    """The host's addresses, all of them allowed. Raises OSError where there are none, AddressRefused otherwise.

    One bad address among good ones refuses the name: which of them is used must not be a matter of luck.
    """
    addresses = await resolve(host, port)
    for text in addresses:
        if not may_reach(ip_address(text), allowed=allowed):
            raise AddressRefused(text)
    return addresses
