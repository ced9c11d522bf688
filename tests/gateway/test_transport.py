"""The HTTP client under the relay against a server that does everything wrong, on both event loops."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from gateway.connection import HIGH_WATER_BYTES, MAX_HEAD_BYTES, Connection
from gateway.transport import IDLE_SECONDS, Transport
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream, Received, Wire, fake_upstream
from tests.gateway.loops import until

type Run = Callable[[Coroutine[Any, Any, Any]], Any]

OK = replies.answer(b"fine")
# How much one read of an event loop brings at most, beyond the mark at which reading pauses.
ONE_READ_BYTES = 262_144


@pytest.fixture(params=[uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


@asynccontextmanager
async def transport(**options: Any) -> Any:
    made = Transport(**options)
    try:
        yield made
    finally:
        await made.aclose()


def post(upstream: FakeUpstream, body: bytes = b"{}", *, connect: float = 5.0, read: float = 20.0) -> httpx.Request:
    return httpx.Request(
        "POST",
        f"{upstream.url}/chat/completions",
        headers={"content-length": str(len(body))},
        stream=httpx.ByteStream(body),
        extensions={"timeout": {"connect": connect, "read": read}},
    )


async def fetch(client: Transport, request: httpx.Request) -> tuple[int, bytes]:
    response = await client.handle_async_request(request)
    try:
        return response.status_code, b"".join([piece async for piece in response.stream])  # type: ignore[union-attr]
    finally:
        await response.stream.aclose()  # type: ignore[union-attr]


def only_connection(client: Transport) -> Connection:
    (connection,) = client.open_connections
    return connection


# -- keep-alive --------------------------------------------------------------------------------------


def test_a_connection_serves_request_after_request(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(OK, OK, replies.answer({"error": "no"}, status=400), replies.stream(*replies.hello()), OK)

    async def scenario() -> None:
        async with transport() as client:
            assert [await fetch(client, post(upstream)) for _ in range(2)] == [(200, b"fine")] * 2
            assert (await fetch(client, post(upstream)))[0] == 400
            assert await fetch(client, post(upstream)) == (200, b"".join([*replies.hello(), replies.DONE]))
            assert await fetch(client, post(upstream)) == (200, b"fine")
            assert len(client.open_connections) == 1

    run(scenario())
    assert len({request.connection for request in upstream.received}) == 1


def test_a_connection_in_use_is_not_shared(run: Run, upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, replies.hello(), [replies.DONE]), OK)

    async def scenario() -> None:
        async with transport() as client:
            first = await client.handle_async_request(post(upstream))
            assert await fetch(client, post(upstream)) == (200, b"fine")
            gate.open()
            assert (await first.aread()).endswith(replies.DONE)
            await first.aclose()

    run(scenario())
    assert len({request.connection for request in upstream.received}) == 2


def test_connections_that_a_busy_time_left_over_are_closed(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(*[OK] * 4)

    async def scenario() -> None:
        async with transport() as client:
            responses = [await client.handle_async_request(post(upstream)) for _ in range(3)]
            for response in responses:
                await response.aread()
                await response.aclose()
            first, second, last = sorted(client.open_connections, key=lambda one: one.idle_since)
            first.idle_since -= 2 * IDLE_SECONDS
            second.idle_since -= 2 * IDLE_SECONDS
            assert await fetch(client, post(upstream)) == (200, b"fine")
            assert client.open_connections == {last}
            assert (first.closed, second.closed, last.closed) == (True, True, False)

    run(scenario())


@pytest.mark.parametrize("value", ["close", "Close"])
def test_a_connection_that_the_server_gives_up_is_not_used_again(run: Run, upstream: FakeUpstream, value: str) -> None:
    upstream.then(replies.answer(b"fine", connection=value), OK)

    async def scenario() -> None:
        async with transport() as client:
            assert await fetch(client, post(upstream)) == (200, b"fine")
            assert not client.open_connections
            assert await fetch(client, post(upstream)) == (200, b"fine")

    run(scenario())
    assert upstream.received[0].connection != upstream.received[1].connection


def test_a_pooled_connection_found_closed_is_replaced_once_without_an_error(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(OK, replies.hang_up_at_once(), OK)

    async def scenario() -> None:
        async with transport() as client:
            await fetch(client, post(upstream))
            assert await fetch(client, post(upstream, b"again")) == (200, b"fine")

    run(scenario())
    first, stale, fresh = upstream.received
    assert first.connection == stale.connection != fresh.connection
    assert stale.body == fresh.body == b"again"


def test_a_request_that_makes_the_server_hang_up_is_sent_at_most_twice(run: Run, upstream: FakeUpstream) -> None:
    """Whatever the number of pooled connections: it may be the request itself that the server does not survive."""
    gates = [upstream.gate() for _ in range(3)]
    upstream.then(*(replies.paused_stream(gate, [], replies.hello()) for gate in gates))
    upstream.then(*[replies.hang_up_at_once()] * 4)

    async def scenario() -> None:
        async with transport() as client:
            several = [asyncio.create_task(fetch(client, post(upstream))) for _ in range(3)]
            await until(lambda: all(gate.reached.is_set() for gate in gates))
            for gate in gates:
                gate.open()
            await asyncio.gather(*several)
            assert len(client.open_connections) == 3
            with pytest.raises(httpx.RemoteProtocolError):
                await fetch(client, post(upstream))

    run(scenario())
    assert len(upstream.received) == 5


def test_a_fresh_connection_closed_without_an_answer_is_an_error(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(replies.hang_up_at_once())

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await fetch(client, post(upstream))
            assert not client.open_connections

    run(scenario())
    assert len(upstream.received) == 1


def test_a_reused_connection_that_dies_within_its_answer_is_not_retried(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(OK, replies.raw(b"HTTP/1.1 200 OK\r\n", close=True))

    async def scenario() -> None:
        async with transport() as client:
            await fetch(client, post(upstream))
            with pytest.raises(httpx.RemoteProtocolError):
                await fetch(client, post(upstream))

    run(scenario())
    assert len(upstream.received) == 2


@pytest.mark.parametrize(
    "surplus",
    [b"garbage", b"HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nevil", b"HTTP/1.1 408 Idle\r\n\r\n", b"\r\n\x00"],
)
@pytest.mark.parametrize("apart", [True, False])
def test_bytes_nobody_asked_for_spoil_neither_this_answer_nor_the_next(
    run: Run, upstream: FakeUpstream, surplus: bytes, apart: bool
) -> None:
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"
    gate = upstream.gate()

    async def reply(request: Received, wire: Wire) -> None:
        if apart:
            await wire.send(whole)
            await gate.wait()
            await wire.send(surplus)
        else:
            await wire.send(whole + surplus)

    upstream.then(reply, OK)

    async def scenario() -> None:
        async with transport() as client:
            assert await fetch(client, post(upstream)) == (200, b"fine")
            gate.open()
            await until(lambda: not client.open_connections or not only_connection(client).reusable)
            assert await fetch(client, post(upstream)) == (200, b"fine")

    run(scenario())
    assert upstream.received[0].connection != upstream.received[1].connection


# -- answers of every form ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"], b"fine"),
        ([b"HTTP/1.1 200 OK\r\n", b"content-length: 4\r\n\r", b"\nfi", b"ne"], b"fine"),
        ([b"HTTP/1.0 200 OK\r\n\r\n", b"until ", b"the end"], b"until the end"),
        ([b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil", b" the end"], b"until the end"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfine"], b"fine"),
        (
            [b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\ncontent-length: 9\r\n\r\nHTTP/1.1 200 OK\r\n\r\nfine"],
            b"fine",
        ),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;x=1\r\nfine\r\n0\r\nx-sum: 1\r\n\r\n"], b"fine"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], b""),
    ],
)
def test_bodies_of_every_form(run: Run, upstream: FakeUpstream, answer: list[bytes], body: bytes) -> None:
    upstream.then(replies.raw(*answer, close=True))

    async def scenario() -> None:
        async with transport() as client:
            status, found = await fetch(client, post(upstream))
            assert (status, found) == (204 if b"204" in answer[0] else 200, body)

    run(scenario())


def test_headers_arrive_as_they_were_sent_and_those_before_the_answer_do_not(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(
        replies.raw(b"HTTP/1.1 103 Hints\r\nx-hint: 1\r\n\r\n"
                    b"HTTP/1.1 429 Slow\r\nRetry-After: 7\r\nx-a: 1\r\nx-a: 2\r\ncontent-length: 0\r\n\r\n")
    )  # fmt: skip

    async def scenario() -> None:
        async with transport() as client:
            response = await client.handle_async_request(post(upstream))
            assert response.headers.multi_items() == [
                ("retry-after", "7"), ("x-a", "1"), ("x-a", "2"), ("content-length", "0"),
            ]  # fmt: skip
            await response.aclose()

    run(scenario())


def test_the_answer_to_head_has_no_body_whatever_its_head_says(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(replies.raw(replies.head(content_length="500", x_a="1")), OK)

    async def scenario() -> None:
        async with transport() as client:
            request = post(upstream)
            request.method = "HEAD"
            response = await client.handle_async_request(request)
            assert (response.status_code, response.headers["x-a"]) == (200, "1")
            assert [piece async for piece in response.stream] == []
            await response.stream.aclose()
            assert await fetch(client, post(upstream)) == (200, b"fine")

    run(scenario())


def test_a_large_request_arrives_whole(run: Run, upstream: FakeUpstream) -> None:
    body = bytes(range(256)) * 40_000
    upstream.then(OK)

    async def scenario() -> None:
        async with transport() as client:
            assert await fetch(client, post(upstream, body)) == (200, b"fine")

    run(scenario())
    assert upstream.received[0].body == body


# -- broken answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        [b"SSH-2.0-OpenSSH_9.6\r\n"],
        [b"\x16\x03\x01\x00\x00"],
        [b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n"],
        [b"HTTP/1.1 abc\r\n\r\n"],
        [b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * MAX_HEAD_BYTES, b"b" * MAX_HEAD_BYTES],
        [b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_HEAD_BYTES // 25 + 1), b"HTTP/1.1 100 Continue\r\n\r\n" * 9000],
    ],
)
def test_what_is_no_answer_is_an_error_and_leaves_no_connection(
    run: Run, upstream: FakeUpstream, answer: list[bytes]
) -> None:
    upstream.then(replies.silence_after(*answer))

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await fetch(client, post(upstream))
            assert not client.open_connections

    run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nha",
    ],
)
@pytest.mark.parametrize("reset", [True, False])
def test_an_answer_that_ends_early_is_an_error(run: Run, upstream: FakeUpstream, answer: bytes, reset: bool) -> None:
    upstream.then(replies.raw(answer, close=True, reset=reset))

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await fetch(client, post(upstream))
            assert not client.open_connections

    run(scenario())


def test_what_came_before_an_early_end_is_read_before_the_error(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(replies.cut_stream(*replies.hello()))
    pieces: list[bytes] = []

    async def scenario() -> None:
        async with transport() as client:
            response = await client.handle_async_request(post(upstream))
            while piece := await anext(response.stream, b""):
                pieces.append(piece)
                if b"".join(pieces) == b"".join(replies.hello()):
                    break
            with pytest.raises(httpx.RemoteProtocolError):
                await anext(response.stream)
            await response.stream.aclose()

    run(scenario())
    assert b"".join(pieces) == b"".join(replies.hello())


def test_chunks_that_do_not_add_up_are_an_error(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD + b"4\r\nfine\r\nxyz\r\n"))

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await fetch(client, post(upstream))

    run(scenario())


# -- time-outs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [[], [b"HTTP/1.1 200 OK\r\n"], [replies.STREAM_HEAD, replies.chunked(b"data: a\n\n")]])
def test_silence_is_a_read_time_out_that_ends_the_connection(
    run: Run, upstream: FakeUpstream, said: list[bytes]
) -> None:
    upstream.then(replies.silence_after(*said))

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.ReadTimeout):
                await fetch(client, post(upstream, read=0.05))
            assert not client.open_connections
            await until(lambda: upstream.hangups)

    run(scenario())


def test_a_short_time_out_counts_on_a_connection_that_had_a_long_one(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(OK, replies.silence_after())

    async def scenario() -> None:
        async with transport() as client:
            await fetch(client, post(upstream, read=600))
            with pytest.raises(httpx.ReadTimeout):
                await fetch(client, post(upstream, read=0.05))

    run(scenario())
    assert upstream.received[0].connection == upstream.received[1].connection


def test_a_server_that_stops_taking_the_request_is_a_time_out(run: Run) -> None:
    """It accepts and never reads, so the body stays in the sockets."""
    listener = socket.create_server(("127.0.0.1", 0))
    request = httpx.Request(
        "POST",
        f"http://127.0.0.1:{listener.getsockname()[1]}/",
        stream=httpx.ByteStream(b"x" * 32 * 1024 * 1024),
        extensions={"timeout": {"connect": 5.0, "read": 0.1}},
    )

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.ReadTimeout):
                await fetch(client, request)

    with listener:
        run(scenario())


def test_a_refused_connection_is_a_connect_error(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.ConnectError):
                await client.handle_async_request(httpx.Request("POST", url, stream=httpx.ByteStream(b"")))
            name = "http://no-such-host.invalid/"
            with pytest.raises(httpx.ConnectError):
                await client.handle_async_request(httpx.Request("POST", name, stream=httpx.ByteStream(b"")))

    run(scenario())


def test_a_connection_that_does_not_come_about_is_a_connect_time_out(run: Run) -> None:
    """The listener's queue is full, so the next hello gets no answer."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    waiting = [socket.socket() for _ in range(3)]
    for client in waiting:
        client.setblocking(False)
        client.connect_ex(listener.getsockname())
    request = httpx.Request(
        "POST",
        f"http://127.0.0.1:{listener.getsockname()[1]}/",
        stream=httpx.ByteStream(b""),
        extensions={"timeout": {"connect": 0.1}},
    )

    async def scenario() -> None:
        async with transport() as made:
            with pytest.raises(httpx.ConnectTimeout):
                await made.handle_async_request(request)

    try:
        run(scenario())
    finally:
        for sock in [listener, *waiting]:
            sock.close()


# -- back-pressure and leaving early -----------------------------------------------------------------


def flood(total_bytes: int) -> Callable[[Received, Wire], Awaitable[None]]:
    async def reply(request: Received, wire: Wire) -> None:
        await wire.send(replies.head(content_length=str(total_bytes)))
        block = bytes(range(256)) * 256
        for _ in range(total_bytes // len(block)):
            await wire.send(block)

    return reply


def test_a_slow_reader_pauses_the_socket(run: Run, upstream: FakeUpstream) -> None:
    total_bytes = 32 * 1024 * 1024
    upstream.then(flood(total_bytes))

    async def scenario() -> None:
        async with transport() as client:
            response = await client.handle_async_request(post(upstream))
            connection = only_connection(client)
            await until(lambda: connection._paused)
            assert connection._buffered <= HIGH_WATER_BYTES + ONE_READ_BYTES
            found = 0
            most = 0
            async for piece in response.stream:
                assert piece[:1] == bytes([found % 256])
                found += len(piece)
                most = max(most, len(piece))
            assert found == total_bytes
            assert most <= HIGH_WATER_BYTES + ONE_READ_BYTES
            await response.stream.aclose()

    run(scenario())


def test_a_connection_paused_with_a_whole_answer_unread_is_not_used_again(run: Run, upstream: FakeUpstream) -> None:
    body = b"x" * (HIGH_WATER_BYTES + 1)
    upstream.then(replies.answer(body), OK)

    async def scenario() -> None:
        async with transport() as client:
            response = await client.handle_async_request(post(upstream))
            connection = only_connection(client)
            await until(lambda: connection.complete)
            assert connection._paused
            await response.stream.aclose()
            assert await fetch(client, post(upstream)) == (200, b"fine")

    run(scenario())
    assert upstream.received[0].connection != upstream.received[1].connection


def test_leaving_in_the_middle_of_a_body_hangs_up(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(replies.hello()[0])))

    async def scenario() -> None:
        async with transport() as client:
            response = await client.handle_async_request(post(upstream))
            assert await anext(response.stream) == replies.hello()[0]
            await response.stream.aclose()
            assert not client.open_connections
            await until(lambda: upstream.hangups)
            assert await anext(response.stream, None) is None

    run(scenario())


@pytest.mark.parametrize("said", [[], [b"HTTP/1.1 200 OK\r\n"]])
def test_a_cancelled_request_hangs_up(run: Run, upstream: FakeUpstream, said: list[bytes]) -> None:
    upstream.then(replies.silence_after(*said))

    async def scenario() -> None:
        async with transport() as client:
            task = asyncio.create_task(client.handle_async_request(post(upstream)))
            await until(lambda: upstream.received)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not client.open_connections
            await until(lambda: upstream.hangups)

    run(scenario())


def test_closing_the_transport_hangs_up_everywhere(run: Run, upstream: FakeUpstream) -> None:
    upstream.then(OK, replies.silence_after(replies.STREAM_HEAD))

    async def scenario() -> None:
        client = Transport()
        await fetch(client, post(upstream))
        response = await client.handle_async_request(post(upstream))
        await client.aclose()
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(response.stream)  # type: ignore[call-overload]
        await until(lambda: upstream.hangups)

    run(scenario())


def test_a_connection_that_is_gone_leaves_nothing_for_the_collector(run: Run, upstream: FakeUpstream) -> None:
    """A thousand of them would be found at once, while a thousand streams wait."""
    upstream.then(OK)

    async def scenario() -> None:
        async with transport() as client:
            await fetch(client, post(upstream))
            connection = weakref.ref(only_connection(client))
        await until(lambda: connection() is None)

    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()


# -- TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tls_upstream(certificate: Path) -> Iterator[FakeUpstream]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    with fake_upstream(tls=context) as server:
        yield server


def test_a_trusted_server_is_spoken_to_over_tls(run: Run, tls_upstream: FakeUpstream, certificate: Path) -> None:
    tls_upstream.reset()
    tls_upstream.then(OK, replies.stream(*replies.hello()))

    async def scenario() -> None:
        async with transport(ssl_context=ssl.create_default_context(cafile=str(certificate))) as client:
            assert await fetch(client, post(tls_upstream)) == (200, b"fine")
            assert await fetch(client, post(tls_upstream)) == (200, b"".join([*replies.hello(), replies.DONE]))

    run(scenario())
    assert tls_upstream.received[0].connection == tls_upstream.received[1].connection


def test_a_server_that_nobody_vouches_for_is_a_connect_error(run: Run, tls_upstream: FakeUpstream) -> None:
    tls_upstream.reset()

    async def scenario() -> None:
        async with transport() as client:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await fetch(client, post(tls_upstream))

    run(scenario())
    assert tls_upstream.received == []


def test_a_handshake_that_does_not_end_is_a_connect_time_out(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        request = httpx.Request("POST", url, stream=httpx.ByteStream(b""), extensions={"timeout": {"connect": 0.1}})

        async def scenario() -> None:
            async with transport() as client:
                with pytest.raises(httpx.ConnectTimeout):
                    await client.handle_async_request(request)

        run(scenario())


def test_what_a_failed_read_left_behind_is_nobody_elses() -> None:
    """Connections of one loop share what a read brings until it is handed on."""

    async def scene() -> bytes:
        loop, arriving = asyncio.get_running_loop(), list[bytes]()
        broken, whole = Connection(loop, arriving), Connection(loop, arriving)
        broken.on_body(b"of another's answer")
        whole.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nmine")
        return await whole.read(1)

    assert asyncio.run(scene()) == b"mine"
