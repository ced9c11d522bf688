"""The server's own part of HTTP, byte for byte, in front of an application that echoes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from config.server import ACCEPTED_AT_ONCE, Protocol, handles, listen
from tests.services import wait_until

ECHO = b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
heard: list[str] = []


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the body; some paths do what an application must not."""
    path = scope["path"]
    body = b""
    message: dict[str, Any] = {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    heard.append(message["type"])
    answer = path.encode() + b" " + body
    if path == "/headers":
        answer = b",".join(name for name, _ in scope["headers"])
    length = {"/long": 1, "/short": 99}.get(path, len(answer))
    headers = [(b"content-length", b"%d" % length)]
    if path == "/chunked":
        headers = [(b"X-Capital", b"1")]
    elif path == "/split":
        headers = [(b"x-split", b"a\r\nx-b: c"), *headers]
    elif path == "/capitals":
        headers = [(b"Content-Length", b"%d" % length), (b"Connection", b"Close")]
    if path == "/wait":
        while (await receive())["type"] != "http.disconnect":
            pass
        heard.append("gone")
        return
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if path == "/chunked":
        await send({"type": "http.response.body", "body": answer, "more_body": True})
        answer = b"."
    await send({"type": "http.response.body", "body": answer})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    sock = listen("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(application, http=Protocol, loop="uvloop", lifespan="off", log_config=None, timeout_keep_alive=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    yield sock.getsockname()[1]
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as made:
        yield made


def received(client: socket.socket, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        piece = client.recv(65536)
        assert piece, data
        data += piece
    return data


def until_closed(client: socket.socket) -> bytes:
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data


def test_an_answer_of_known_length_is_one_head_and_its_body(client: socket.socket) -> None:
    client.sendall(ECHO % 1)
    assert received(client, b"/1 hi") == b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n/1 hi"


def test_a_request_may_come_byte_by_byte(client: socket.socket) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in ECHO % 2:
        client.sendall(bytes([byte]))
    assert received(client, b"/2 hi").startswith(b"HTTP/1.1 200 OK\r\n")


def test_requests_sent_ahead_are_answered_in_their_order(client: socket.socket) -> None:
    many = 3_000
    sender = threading.Thread(target=client.sendall, args=(b"".join(ECHO % number for number in range(many)),))
    sender.start()
    data = received(client, b"/%d hi" % (many - 1))
    sender.join()
    assert [part.partition(b"\r\n\r\n")[2] for part in data.split(b"HTTP/1.1 200 OK\r\n")[1:]] == [
        b"/%d hi" % number for number in range(many)
    ]


def test_chunked_both_ways(client: socket.socket) -> None:
    client.sendall(b"POST /chunked HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n")
    client.sendall(b"1\r\ni\r\n0\r\n\r\n")
    assert received(client, b"0\r\n\r\n") == (
        b"HTTP/1.1 200 OK\r\nX-Capital: 1\r\ntransfer-encoding: chunked\r\n\r\nb\r\n/chunked hi\r\n1\r\n.\r\n0\r\n\r\n"
    )


def test_whoever_expects_to_be_told_to_go_on_is_told(client: socket.socket) -> None:
    client.sendall(b"POST /3 HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
    assert received(client, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(b"hi")
    assert received(client, b"/3 hi").endswith(b"\r\n\r\n/3 hi")


def test_an_answer_to_head_has_no_body(client: socket.socket) -> None:
    client.sendall(b"HEAD /4 HTTP/1.1\r\nhost: x\r\n\r\n" + ECHO % 5)
    assert received(client, b"/5 hi").count(b"/4") == 0


@pytest.mark.parametrize("asks", [b"HTTP/1.1\r\nconnection: close\r\n", b"HTTP/1.0\r\n"])
def test_whoever_wants_the_connection_closed_has_it_closed(client: socket.socket, asks: bytes) -> None:
    client.sendall(b"GET /6 " + asks + b"\r\n")
    assert until_closed(client) == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\n/6 "


def test_header_names_with_capitals_are_understood(client: socket.socket) -> None:
    client.sendall(b"GET /capitals HTTP/1.1\r\nhost: x\r\n\r\n")
    assert until_closed(client) == b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: Close\r\n\r\n/capitals "


@pytest.mark.parametrize("path", ["split", "long"])
def test_an_answer_that_would_be_a_lie_is_none(client: socket.socket, path: str) -> None:
    client.sendall(b"GET /%s HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode())
    assert not until_closed(client).startswith(b"HTTP/1.1 200")


def test_an_answer_that_ends_too_early_is_cut_off(client: socket.socket) -> None:
    client.sendall(b"GET /short HTTP/1.1\r\nhost: x\r\n\r\n")
    assert until_closed(client).endswith(b"\r\n\r\n/short ")


def test_what_is_no_request_is_refused(client: socket.socket) -> None:
    client.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    assert until_closed(client).startswith(b"HTTP/1.1 400 Bad Request\r\n")


LINE = b"x-%d: " + b"y" * 8_000 + b"\r\n"


def test_a_head_of_the_usual_large_size_is_taken(client: socket.socket) -> None:
    client.sendall(b"GET /9 HTTP/1.1\r\n" + b"".join(LINE % number for number in range(30)) + b"\r\n")
    assert received(client, b"/9 ").startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("endless", [b"x: y\r\n" * 1_000, b"y" * 8_000], ids=["lines", "a line"])
def test_a_head_without_an_end_is_refused_before_it_fills_the_memory(client: socket.socket, endless: bytes) -> None:
    client.sendall(b"GET / HTTP/1.1\r\nx: ")
    sent = 0
    with suppress(ConnectionError):
        while sent < 100_000_000:
            client.sendall(endless)
            sent += len(endless)
    # What lies in the buffers of both ends was sent, and read by nobody.
    assert sent < 50_000_000


def test_a_large_body_before_the_next_head_is_no_large_head(client: socket.socket) -> None:
    body = b"z" * 600_000
    large = b"POST /10 HTTP/1.1\r\nhost: x\r\ncontent-length: 600000\r\n\r\n" + body
    client.sendall(large + b"GET /11 HTTP/1.1\r\nhost:")
    assert received(client, b"z" * 600_000).count(b"HTTP/1.1 200 OK") == 1
    client.sendall(b" x\r\n\r\n")
    assert received(client, b"/11 ").startswith(b"HTTP/1.1 200 OK\r\n")


def test_headers_behind_a_body_are_not_the_requests(client: socket.socket) -> None:
    client.sendall(b"POST /headers HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n0\r\n")
    client.sendall(b"authorization: late\r\n\r\n")
    assert received(client, b"host,transfer-encoding")


def test_an_application_hears_that_its_client_has_left(port: int) -> None:
    heard.clear()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until(lambda: heard == ["http.request"], what="the request heard")
    wait_until(lambda: heard == ["http.request", "gone"], what="the end heard")


def test_an_idle_connection_ends_and_one_in_use_does_not(client: socket.socket) -> None:
    client.sendall(ECHO % 7)
    received(client, b"/7 hi")
    assert until_closed(client) == b""


def test_nothing_of_a_request_is_logged(client: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        client.sendall(ECHO % 8)
        received(client, b"/8 hi")
    assert "/8" not in caplog.text


def test_requests_at_the_same_time_do_not_wait_for_each_other(port: int) -> None:
    async def one(number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ECHO % number)
        answer = await reader.readuntil(b"/%d hi" % number)
        writer.close()
        return answer

    async def all_of_them() -> list[bytes]:
        return await asyncio.gather(*(one(number) for number in range(64)))

    assert len(asyncio.run(all_of_them())) == 64


def test_many_connections_are_taken_in_one_turn_of_the_loop() -> None:
    """One a turn is libuv's own way, and a turn is long while a thousand streams run."""
    sock = listen("127.0.0.1", 0)
    clients = [socket.create_connection(sock.getsockname()) for _ in range(3 * ACCEPTED_AT_ONCE)]
    made: list[asyncio.Transport] = []

    class Taken(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(cast(asyncio.Transport, transport))

    async def turns() -> list[int]:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(Taken, sock=handle) for handle in handles(sock)]
        counts: list[int] = []
        while not counts or counts[-1] < len(clients):
            await asyncio.sleep(0)
            counts.append(len(made))
        for taken in made:
            taken.abort()
        for server in servers:
            server.close()
        return counts

    counts = uvloop.run(turns())
    assert max(later - before for before, later in itertools.pairwise([0, *counts])) == ACCEPTED_AT_ONCE
    for one in clients:
        one.close()


def test_a_connection_has_no_more_attributes_than_python_reads_quickly() -> None:
    """CPython shares the names of at most 30 attributes between instances; with one more each has a table of its own,
    and reads and writes of them are no longer specialised."""

    async def connection() -> Protocol:
        config = uvicorn.Config(application, http=Protocol, lifespan="off", log_config=None)
        protocol = Protocol(config=config, server_state=ServerState(), app_state={})
        protocol.on_message_begin()
        return protocol

    assert len(vars(asyncio.run(connection()))) <= 30
