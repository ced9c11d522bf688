"""Whose network address a call comes from: the socket's, or what trusted proxies in front of it say."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address

type Network = IPv4Network | IPv6Network


def client_address(peer: str, headers: Iterable[tuple[bytes, bytes]], *, trusted: tuple[Network, ...]) -> str:
    """The right-most address of X-Forwarded-For that no trusted proxy added; the peer's where it is none itself."""
    if not trusted or not _is_in(peer, trusted):
        return peer
    forwarded = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
    address = peer
    for hop in reversed([hop.strip() for hop in forwarded.split(",") if hop.strip()]):
        try:
            ip_address(hop)
        except ValueError:
            break
        address = hop
        if not _is_in(hop, trusted):
            break
    return address


def _is_in(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)
