"""What may be fetched for a stranger: public addresses only, checked before every connection."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from gateway.errors import InvalidRequest
from gateway.ssrf import PUBLIC_ONLY, Fetched, Guard, fetch, is_public

LOOPBACK = (ip_network("127.0.0.0/8"),)
INSIDE = Guard(allowed=LOOPBACK, schemes=frozenset({"http"}))

# None: not a word until the client leaves.
type Answer = Callable[[bytes], bytes | None]


@asynccontextmanager
async def server(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Answers each connection's request head once; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        reply = answer(head)
        if reply is None:
            await reader.read()
        else:
            writer.write(reply)
            await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


def ok(body: bytes, *, head: bytes = b"content-type: application/pdf; x=y\r\n") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n%s" % (head, len(body), body)


def fetched(answer: Answer, *, url: str = "http://127.0.0.1:{}/a", guard: Guard = INSIDE, **limits: float) -> Fetched:
    async def run() -> Fetched:
        async with server(answer) as port:
            limit_bytes = int(limits.get("limit_bytes", 1000))
            seconds = limits.get("timeout_seconds", 20)
            return await fetch(
                url.format(port), param="document", limit_bytes=limit_bytes, guard=guard, timeout_seconds=seconds
            )

    return asyncio.run(run())


def refusal(answer: Answer = ok, **options: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        fetched(answer, **options)  # type: ignore[arg-type]
    assert caught.value.param == "document"
    return caught.value


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",  # noqa: S104 -- an address to refuse, nothing binds
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "192.0.0.1",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "2002:7f00:1::",
        "fc00::1",
        "fd12::1",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "0", "[::1]", "[::ffff:127.0.0.1]", "localhost"],
)
def test_loopback_is_refused_in_every_notation(host: str) -> None:
    guard = Guard(schemes=frozenset({"http"}))
    error = refusal(url=f"http://{host}:{{}}/", guard=guard)
    assert (error.status, "public internet" in error.message) == (400, True)


def test_an_octal_number_is_no_address_at_all() -> None:
    assert refusal(url="http://0177.0.0.1:{}/", guard=Guard(schemes=frozenset({"http"}))).status == 400


def test_one_private_address_among_public_ones_is_enough() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["1.1.1.1", "10.0.0.1"]

    assert "public internet" in refusal(guard=Guard(schemes=frozenset({"http"}), resolve=resolve)).message


def test_only_https_is_fetched_by_default() -> None:
    assert refusal(guard=PUBLIC_ONLY).message == "Only https URLs without a user name are fetched"


@pytest.mark.parametrize("url", ["http://a:b@127.0.0.1:{}/", "file:///etc/passwd", "http://", "gopher://127.0.0.1:{}/"])
def test_other_schemes_and_credentials_are_refused(url: str) -> None:
    assert refusal(url=url).status == 400


def test_a_document_is_fetched_with_its_type() -> None:
    heads: list[bytes] = []

    def answer(head: bytes) -> bytes:
        heads.append(head.lower())
        return ok(b"content")

    assert fetched(answer) == Fetched(b"content", "application/pdf")
    assert b"accept-encoding: identity" in heads[0]


def test_the_connection_goes_to_the_checked_address_with_the_name_in_its_head() -> None:
    asked: list[str] = []
    heads: list[bytes] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    def answer(head: bytes) -> bytes:
        heads.append(head)
        return ok(b"x")

    guard = Guard(allowed=LOOPBACK, schemes=frozenset({"http"}), resolve=resolve)
    fetched(answer, url="http://documents.example:{}/a", guard=guard)
    assert asked == ["documents.example"]
    assert b"host: documents.example:" in heads[0].lower()


def test_the_next_address_is_tried_where_one_does_not_answer() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    guard = Guard(allowed=LOOPBACK, schemes=frozenset({"http"}), resolve=resolve)
    assert fetched(lambda head: ok(b"x"), url="http://documents.example:{}/a", guard=guard).data == b"x"


def test_a_redirect_is_followed_and_checked_again() -> None:
    def answer(head: bytes) -> bytes:
        if head.startswith(b"GET /a "):
            return b"HTTP/1.1 302 Found\r\nlocation: /b\r\ncontent-length: 0\r\n\r\n"
        return ok(b"moved")

    assert fetched(answer).data == b"moved"


@pytest.mark.parametrize(
    "location", [b"http://10.0.0.1/", b"http://[::1]/", b"file:///etc/passwd", b"ftp://127.0.0.1/"]
)
def test_a_redirect_inside_is_refused(location: bytes) -> None:
    def answer(head: bytes) -> bytes:
        return b"HTTP/1.1 302 Found\r\nlocation: %s\r\ncontent-length: 0\r\n\r\n" % location

    assert refusal(answer).status == 400


def test_redirects_end() -> None:
    def answer(head: bytes) -> bytes:
        return b"HTTP/1.1 307 Again\r\nlocation: /a\r\ncontent-length: 0\r\n\r\n"

    assert refusal(answer).message == "The URL redirects more than 5 times"


@pytest.mark.parametrize("reply", [ok(b"x" * 1001), b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001])
def test_too_much_is_a_413(reply: bytes) -> None:
    assert refusal(lambda head: reply).status == 413


def test_packed_answers_are_not_unpacked() -> None:
    assert "packed" in refusal(lambda head: ok(b"x", head=b"content-encoding: gzip\r\n")).message


@pytest.mark.parametrize("reply", [b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", b"nonsense\r\n\r\n", b""])
def test_failures_are_a_400(reply: bytes) -> None:
    assert refusal(lambda head: reply).status == 400


def test_a_slow_server_is_given_up() -> None:
    assert refusal(lambda head: None, timeout_seconds=0.2).message == "The URL's server took too long to answer"


def test_a_name_that_does_not_resolve() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    guard = Guard(schemes=frozenset({"http"}), resolve=resolve)
    assert "cannot be resolved" in refusal(url="http://nowhere.example/", guard=guard).message


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for documents.example with its key in one file."""
    folder = tmp_path_factory.mktemp("tls")
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=documents.example",
    ]
    command += ["-addext", "subjectAltName=DNS:documents.example", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("host", "trusted"), [("documents.example", True), ("other.example", False)])
def test_tls_is_checked_against_the_name_not_the_address(certificate: Path, host: str, trusted: bool) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    client_side = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    guard = Guard(allowed=LOOPBACK, resolve=resolve, tls=client_side)

    async def run() -> bytes:
        async with server(lambda head: ok(b"secret"), tls=server_side) as port:
            url = f"https://{host}:{port}/a"
            return (await fetch(url, param="document", limit_bytes=1000, guard=guard)).data

    if trusted:
        assert asyncio.run(run()) == b"secret"
    else:
        with pytest.raises(InvalidRequest):
            asyncio.run(run())
