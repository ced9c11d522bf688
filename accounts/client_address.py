"""Whose network address a page's request comes from: the socket's, or what trusted proxies in front of it say."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from django.conf import settings
from django.http import HttpRequest

type Network = IPv4Network | IPv6Network


def client_address(request: HttpRequest) -> str:
    peer, forwarded = request.META.get("REMOTE_ADDR") or "", request.META.get("HTTP_X_FORWARDED_FOR") or ""
    return forwarded_address(peer, forwarded.split(","), trusted=settings.TRUSTED_PROXIES)


def forwarded_address(peer: str, hops: Sequence[str], *, trusted: Sequence[Network]) -> str:
    """The right-most hop that no trusted proxy added; the peer where it is no trusted proxy itself."""
    address = peer
    for hop in reversed([hop.strip() for hop in hops if hop.strip()]):
        # What an untrusted one says of whom it speaks for is not believed.
        if not _is_in(address, trusted) or not _is_address(hop):
            break
        address = hop
    return address


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    return _is_address(address) and any(ip_address(address) in network for network in networks)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
