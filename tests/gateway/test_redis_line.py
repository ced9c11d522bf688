"""The connection to Redis against a real one in each form that a URL can name, and against servers that are none."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as Silent

from gateway.redis_line import RedisLine, Script, reason
from tests.gateway.loops import until
from tests.services import accepts, dead_port, free_port, missing, redis_server, wait_until

type Scene = Callable[[RedisLine], Awaitable[None]]
type Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

ADD = Script("return {ARGV[1] + ARGV[2], ARGV[3]}")
WRONG = Script("return redis.call('INCR', 'text')")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as made:
        yield made


def play(url: str, scene: Scene, *, timeout_seconds: float = 10.0) -> None:
    async def on_a_line() -> None:
        line = RedisLine(url, timeout_seconds=timeout_seconds)
        try:
            await scene(line)
        finally:
            await line.aclose()

    for run in (uvloop.run, asyncio.run):
        run(on_a_line())


@asynccontextmanager
async def server(talk: Talk) -> AsyncIterator[str]:
    async def talk_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(talk_and_close, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        listening.close()


def test_answers_come_in_the_order_of_their_questions(url: str) -> None:
    async def scene(line: RedisLine) -> None:
        await line.ask("FLUSHDB")
        asked = [line.ask("HINCRBY", "counter", b"f", number) for number in range(1, 101)]
        asked += [line.ask("HGET", "counter", "f"), line.ask("GET", "nothing"), line.ask("HGETALL", "counter")]
        answers = await asyncio.gather(*asked)
        assert answers == [number * (number + 1) // 2 for number in range(1, 101)] + [b"5050", None, [b"f", b"5050"]]

    play(url, scene)


def test_a_script_that_redis_does_not_know_is_sent_in_full(url: str) -> None:
    async def scene(line: RedisLine) -> None:
        for _ in range(2):
            await line.ask("SCRIPT", "FLUSH")
            asked = [line.run(ADD, number, 5, f"größer\r\n{number}") for number in range(3)]
            assert await asyncio.gather(*asked) == [[5 + n, f"größer\r\n{n}".encode()] for n in range(3)]
        assert await line.ask("SCRIPT", "EXISTS", ADD.sha1) == [1]

    play(url, scene)


def test_an_error_is_that_of_its_own_question(url: str) -> None:
    async def scene(line: RedisLine) -> None:
        await line.ask("SET", "text", "no number")
        before, wrong, again, after = (
            line.ask("ECHO", "a"),
            line.run(WRONG),
            line.ask("NONSENSE"),
            line.ask("ECHO", "b"),
        )
        assert (await before, await after) == (b"a", b"b")
        for failed in (wrong, again):
            with pytest.raises(ResponseError):
                await failed

    play(url, scene)


def test_whoever_gives_up_waiting_takes_nobody_elses_answer(url: str) -> None:
    async def scene(line: RedisLine) -> None:
        given_up, next_one = line.ask("ECHO", "a"), line.ask("ECHO", "b")
        given_up.cancel()
        assert await next_one == b"b"

    play(url, scene)


def test_what_is_asked_in_one_turn_leaves_in_one_write() -> None:
    read: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            read.append(data)
            writer.write(b"+OK\r\n" * data.count(b"*1\r\n"))

    async def scenario() -> None:
        async with server(talk) as url:
            line = RedisLine(url, timeout_seconds=10)
            for _ in range(2):
                await asyncio.gather(*(line.ask("PING") for _ in range(5)))
            await line.aclose()

    asyncio.run(scenario())
    assert read == [b"*1\r\n$4\r\nPING\r\n" * 5] * 2


def test_a_restarted_redis_is_found_again(tmp_path: Path) -> None:
    port = free_port()

    async def scenario() -> None:
        line = RedisLine(f"redis://127.0.0.1:{port}/0", timeout_seconds=10)
        for _ in range(2):
            with redis_server(tmp_path, port=port):
                assert await line.run(ADD, 1, 2, "") == [3, b""]
            # It is gone: whoever asks now is told so.
            await until(lambda: line._wire and not line._wire.is_open)
            with pytest.raises(Lost):
                await line.ask("PING")
        await line.aclose()

    asyncio.run(scenario())


def test_where_nobody_listens_each_is_told() -> None:
    async def scene(line: RedisLine) -> None:
        answers = await asyncio.gather(*(line.ask("PING") for _ in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [Lost] * 3

    play(f"redis://127.0.0.1:{dead_port()}/0", scene)


@pytest.mark.parametrize(
    ("said", "error"),
    [(b"", Silent), (b"$5\r\nhal", Silent), (b"HTTP/1.1 400 Bad Request\r\n\r\n", Lost), (None, Lost)],
    ids=["nothing", "half", "another protocol", "gone"],
)
def test_a_server_that_does_not_answer_fails_all_who_wait_and_is_left(
    said: bytes | None, error: type[RedisError]
) -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(100)
        if said is None:
            writer.close()
            return
        writer.write(said)
        # It hangs up: the other side has given up.
        while await reader.read(100):
            pass
        writer.close()

    async def scenario() -> None:
        async with server(talk) as url:
            line = RedisLine(url, timeout_seconds=0.2)
            for _ in range(2):
                answers = await asyncio.gather(line.ask("PING"), line.run(ADD, 1, 2, ""), return_exceptions=True)
                assert [type(answer) for answer in answers] == [error] * 2
            await line.aclose()

    asyncio.run(scenario())
    assert connections == 2


def test_a_write_that_fails_leaves_nobody_waiting_for_ever(url: str) -> None:
    class Closed(asyncio.Transport):
        def write(self, data: Any) -> None:
            raise RuntimeError("the handle is closed")

        def abort(self) -> None:
            pass

    async def scenario() -> None:
        said: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["exception"]))
        line = RedisLine(url, timeout_seconds=0.2)
        await line.ask("PING")
        assert line._wire
        whole, line._wire._transport = line._wire._transport, Closed()
        with pytest.raises(Silent):
            await line.ask("PING")
        assert [str(error) for error in said] == ["the handle is closed"]
        assert await line.ask("PING") == b"PONG"
        assert whole
        whole.abort()
        await line.aclose()

    asyncio.run(scenario())


def test_an_answer_too_many_is_not_the_next_ones() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(b"+mine\r\n" * data.count(b"*1\r\n") + b"+nobody's\r\n")
        writer.close()

    async def scenario() -> None:
        async with server(talk) as url:
            line = RedisLine(url, timeout_seconds=10)
            for _ in range(3):
                assert await line.ask("PING") == b"mine"
                await until(lambda: line._wire and not line._wire.is_open)
            await line.aclose()

    asyncio.run(scenario())


def test_a_closed_line_answers_nobody_and_does_not_open_again(url: str) -> None:
    async def scenario() -> None:
        line = RedisLine(url, timeout_seconds=10)
        before = line.ask("PING")
        await line.aclose()
        for asked in (before, line.ask("PING")):
            with pytest.raises(Lost):
                await asked
        assert line._wire is None

    asyncio.run(scenario())


def test_a_firewall_on_the_way_hears_of_a_connection_that_says_nothing(url: str) -> None:
    async def scene(line: RedisLine) -> None:
        await line.ask("PING")
        assert line._wire
        assert line._wire._transport
        connected = line._wire._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    play(url, scene)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ResponseError("WRONGPASS invalid username-password pair"), "WRONGPASS"),
        (ResponseError("secret is no command"), "ResponseError"),
        (ResponseError(""), "ResponseError"),
        (Lost("HOST is gone"), "ConnectionError"),
        (Silent("no answer in time"), "TimeoutError"),
    ],
)
def test_a_log_line_says_what_redis_called_it_and_nothing_else(error: RedisError, said: str) -> None:
    assert reason(error) == said


def test_closing_while_it_connects_tells_those_who_wait() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> None:
        async with server(silent) as url:
            line = RedisLine(url.replace("://", "://:secret@"), timeout_seconds=10)
            asked = line.ask("PING")
            await until(lambda: line._connecting)
            await line.aclose()
            with pytest.raises(Lost):
                await asked

    asyncio.run(scenario())


@pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("goodbye", ["answered", "unanswered", "given up"])
def test_closing_over_tls_waits_for_the_goodbye_no_longer_than_for_an_answer(
    certificate: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop], goodbye: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    said: list[str] = []
    closed = threading.Event()

    def serve(listening: socket.socket) -> None:
        raw, _ = listening.accept()
        with context.wrap_socket(raw, server_side=True, suppress_ragged_eofs=False) as connected:
            connected.recv(100)
            connected.sendall(b"+PONG\r\n")
            assert connected.recv(100) == b""
            said.append("client")
            if goodbye == "answered":
                # Whoever does not wait is through long before.
                time.sleep(0.1)
                said.append("server")
                connected.unwrap()
            else:
                closed.wait(30)

    async def scenario(port: int) -> None:
        timeout_seconds = 0.5 if goodbye == "unanswered" else 20
        line = RedisLine(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificate}", timeout_seconds=timeout_seconds)
        assert await line.ask("PING") == b"PONG"
        if goodbye != "given up":
            await line.aclose()
            return
        wire = line._wire
        assert wire
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.aclose(), 0.1)
        async with asyncio.timeout(5):
            await wire._lost.wait()

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as pool:
        serving = pool.submit(serve, listening)
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(scenario(listening.getsockname()[1]))
            told_before = list(said)
        finally:
            closed.set()
        serving.result(30)
    assert said == (["client", "server"] if goodbye == "answered" else ["client"])
    assert ("server" in told_before) == (goodbye == "answered")


# -- what a URL can say ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[dict[str, Any]]:
    """A Redis with a password and a user of its own, over TCP, TLS and a socket in the file system."""
    program = shutil.which("redis-server")
    if program is None:
        missing("redis-server")
    folder = tmp_path_factory.mktemp("guarded")
    port, tls_port = free_port(), free_port()
    path = folder / "redis.sock"
    (folder / "redis.conf").write_text(f"""
bind 127.0.0.1
port {port}
tls-port {tls_port}
tls-cert-file {certificate}
tls-key-file {certificate}
tls-auth-clients no
unixsocket {path}
requirepass "pass word"
user anna on >her-own ~* +@all
user bert on nopass ~* +@all
save ""
dir {folder}
""")
    process = subprocess.Popen([program or "", folder / "redis.conf"], stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: accepts(port) and accepts(tls_port), what="Redis listening")
        yield {"port": port, "tls_port": tls_port, "path": path, "certificate": certificate}
    finally:
        process.terminate()
        process.wait(10)


@pytest.mark.parametrize(
    ("form", "user"),
    [
        ("redis://:pass%20word@127.0.0.1:{port}/3", b"default"),
        ("redis://anna:her-own@127.0.0.1:{port}/3", b"anna"),
        ("redis://bert@127.0.0.1:{port}/3", b"bert"),
        ("rediss://anna:her-own@127.0.0.1:{tls_port}/3?ssl_ca_certs={certificate}", b"anna"),
        ("rediss://:pass%20word@127.0.0.1:{tls_port}/3?ssl_cert_reqs=none&ssl_check_hostname=false", b"default"),
        ("unix://anna:her-own@{path}?db=3", b"anna"),
    ],
    ids=["password", "user", "user without one", "TLS", "TLS unchecked", "socket"],
)
def test_it_signs_in_and_goes_to_the_database_of_the_url(guarded: dict[str, Any], form: str, user: bytes) -> None:
    async def scene(line: RedisLine) -> None:
        told = (await line.ask("CLIENT", "INFO")).split()
        assert {b"db=3", b"user=" + user} <= set(told)
        assert await line.run(ADD, 1, 2, "") == [3, b""]

    play(form.format(**guarded), scene)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ("redis://:wrong@127.0.0.1:{port}/0", ResponseError),
        ("redis://127.0.0.1:{port}/0", ResponseError),
        ("redis://anna:her-own@127.0.0.1:{port}/99", ResponseError),
        ("rediss://anna:her-own@127.0.0.1:{tls_port}/0", Lost),
        ("unix:///nowhere/redis.sock", Lost),
    ],
    ids=["wrong password", "none", "no such database", "unknown authority", "no such socket"],
)
def test_whoever_is_not_let_in_is_told(guarded: dict[str, Any], form: str, error: type[RedisError]) -> None:
    async def scene(line: RedisLine) -> None:
        with pytest.raises(error):
            await line.ask("PING")

    play(form.format(**guarded), scene)
