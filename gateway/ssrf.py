"""Fetching what a stranger names, without being sent into our own network.

The name is resolved here, every address it has is checked, and the connection goes to the checked address
itself: nothing is resolved a second time. Each redirect starts over. Time and size are bounded, and nothing
is unpacked.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpx

from gateway.data_url import too_large
from gateway.errors import InvalidRequest

type Address = IPv4Address | IPv6Address
type Network = IPv4Network | IPv6Network
type Resolve = Callable[[str, int], Awaitable[list[str]]]

MAX_REDIRECTS = 5
CONNECT_SECONDS = 5.0
TIMEOUT_SECONDS = 30.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})
NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Whether an address belongs to the open internet, whichever way it is written."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in NAT64:
            inner = IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        # Tunnels say two addresses at once; old compatible forms (::127.0.0.1) are reserved.
        if address.teredo or address.is_reserved or address.is_site_local or address.scope_id:
            return False
    elif address.is_reserved:
        return False
    return address.is_global and not address.is_multicast and not address.is_unspecified


async def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name. Numbers in any notation (`0x7f.1`, `2130706433`) come out as what they mean."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True, slots=True)
class Guard:
    """What may be reached. `allowed` networks are exempt, for installations that hold documents inside."""

    allowed: tuple[Network, ...] = ()
    schemes: frozenset[str] = frozenset({"https"})
    resolve: Resolve = field(default=resolve)
    tls: ssl.SSLContext | None = None

    async def addresses(self, host: str, port: int) -> list[str]:
        """Raises InvalidRequest unless every address of the host may be reached."""
        try:
            found = await self.resolve(host, port)
            checked = [ip_address(text) for text in found]
        except (OSError, ValueError):
            raise InvalidRequest(f"The host {host[:200]} of the URL cannot be resolved") from None
        if not checked or not all(self._may_reach(address) for address in checked):
            raise InvalidRequest("The URL leads to an address that is not on the public internet")
        return found

    def _may_reach(self, address: Address) -> bool:
        return is_public(address) or any(address in network for network in self.allowed)


PUBLIC_ONLY = Guard()


@dataclass(frozen=True, slots=True)
class Fetched:
    data: bytes
    media_type: str  # as the server calls it; may be empty


async def fetch(
    url: str, *, param: str, limit_bytes: int, guard: Guard = PUBLIC_ONLY, timeout_seconds: float = TIMEOUT_SECONDS
) -> Fetched:
    """Raises InvalidRequest (400, or 413 above the limit) naming `param`, whatever goes wrong out there."""
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _fetch(url, limit_bytes=limit_bytes, guard=guard)
    except TimeoutError:
        raise InvalidRequest("The URL's server took too long to answer", param=param) from None
    except _TooLarge:
        raise too_large(param, limit_bytes) from None
    except (httpx.HTTPError, httpx.InvalidURL):
        raise InvalidRequest("The URL could not be fetched", param=param) from None
    except InvalidRequest as error:
        error.param = param
        raise


class _TooLarge(Exception):
    pass


async def _fetch(url: str, *, limit_bytes: int, guard: Guard) -> Fetched:
    target = httpx.URL(url)
    for _ in range(MAX_REDIRECTS + 1):
        response = await _open(target, guard)
        try:
            if response.status_code in REDIRECTS and (location := response.headers.get("location")):
                target = target.join(location)
                continue
            if response.status_code != 200:
                raise InvalidRequest(f"The URL's server answered {response.status_code}")
            if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
                raise InvalidRequest("The URL's server sent a packed answer, which nobody asked for")
            media_type = response.headers.get("content-type", "").split(";")[0].strip().lower()
            return Fetched(await _read(response, limit_bytes), media_type)
        finally:
            await response.aclose()
    raise InvalidRequest(f"The URL redirects more than {MAX_REDIRECTS} times")


async def _open(target: httpx.URL, guard: Guard) -> httpx.Response:
    name = target.raw_host.decode("ascii")
    if target.scheme not in guard.schemes or not name or target.userinfo:
        raise InvalidRequest("Only https URLs without a user name are fetched")
    port = target.port or (443 if target.scheme == "https" else 80)
    failure: httpx.HTTPError | None = None
    for address in await guard.addresses(name, port):
        transport = httpx.AsyncHTTPTransport(verify=guard.tls or _tls(), trust_env=False)
        # The address stands in the URL; name checks of TLS and virtual hosts still see the name.
        request = httpx.Request(
            "GET",
            target.copy_with(host=address, fragment=None),
            headers={"host": target.netloc.decode("ascii"), "accept": "*/*", "accept-encoding": "identity"},
            extensions={
                "timeout": {"connect": CONNECT_SECONDS, "read": TIMEOUT_SECONDS, "write": CONNECT_SECONDS},
                "sni_hostname": name,
            },
        )
        try:
            response = await transport.handle_async_request(request)
        except httpx.HTTPError as error:
            await transport.aclose()
            failure = error
            continue
        return httpx.Response(
            response.status_code, headers=response.headers, stream=_Owned(response, transport), request=request
        )
    assert failure is not None
    raise failure


class _Owned(httpx.AsyncByteStream):
    """A body that takes its connection with it when it is closed."""

    def __init__(self, response: httpx.Response, transport: httpx.AsyncHTTPTransport) -> None:
        self._stream = response.stream
        self._transport = transport

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)  # type: ignore[arg-type]

    async def aclose(self) -> None:
        await self._stream.aclose()  # type: ignore[union-attr]
        await self._transport.aclose()


async def _read(response: httpx.Response, limit_bytes: int) -> bytes:
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit_bytes:
        raise _TooLarge
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > limit_bytes:
            raise _TooLarge
    return bytes(data)


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    # Reading the certificates takes a while, and they are the same for every fetch.
    return httpx.create_ssl_context(trust_env=False)
