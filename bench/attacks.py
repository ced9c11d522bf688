"""What strangers may send: connections that dawdle, keys that are guessed, bodies without an end. Bounded in time and
number, to ports of this machine."""

from __future__ import annotations

import json
import secrets
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

PIPELINED = 50
TIMEOUT_SECONDS = 30.0
ENDLESS_BYTES = 64_000_000
MEGABYTE = 1_000_000
CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"


# -- connections that dawdle -------------------------------------------------------------------


def dawdle(ports: Sequence[int], *, connections: int, seconds: float, look: Callable[[], None]) -> tuple[int, int]:
    """Open so many, send each a byte of a header every second; how many were opened, and how many the server ended."""
    held: list[socket.socket] = []
    ended, deadline = 0, time.monotonic() + seconds
    try:
        for number in range(connections):
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", ports[number % len(ports)]), timeout=5))
                held[-1].sendall(CHAT + b"x-slow: ")
                held[-1].setblocking(False)
        opened = len(held)
        while time.monotonic() < deadline:
            time.sleep(1.0)
            look()
            living = [one for one in held if _is_let_live(one)]
            ended += len(held) - len(living)
            for gone in set(held) - set(living):
                gone.close()
            held = living
    finally:
        for one in held:
            one.close()
    return opened, ended


def _is_let_live(connection: socket.socket) -> bool:
    try:
        connection.send(b"x")
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


# -- keys that are guessed ---------------------------------------------------------------------


@dataclass(slots=True)
class Guesser:
    """One connection that sends as fast as it is answered, some dozens ahead."""

    connection: socket.socket
    waiting: int = 0
    unsent: bytes = b""
    tail: bytes = b""
    statuses: Counter[bytes] = field(default_factory=Counter)

    def turn(self) -> None:
        if self.waiting <= PIPELINED // 2 and not self.unsent:
            self.unsent = b"".join(_guess() for _ in range(PIPELINED))
            self.waiting += PIPELINED
        with suppress(BlockingIOError):
            if self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]
            data = self.tail + self.connection.recv(262_144)
            parts = data.split(b"HTTP/1.1 ")
            # The last may be cut within its status.
            self.tail = b"HTTP/1.1 " + parts[-1] if len(parts[-1]) < 3 and len(parts) > 1 else parts[-1][-8:]
            for part in parts[1:]:
                if len(part) >= 3:
                    self.statuses[part[:3]] += 1
                    self.waiting -= 1


def _guess() -> bytes:
    key = b"rc-" + secrets.token_hex(24).encode()
    return b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer %s\r\n\r\n" % key


def guess_keys(ports: Sequence[int], *, connections: int, seconds: float) -> Counter[str]:
    """Unknown keys for so long; how many answers of each status came."""
    selector = selectors.DefaultSelector()
    guessers = [Guesser(socket.create_connection(("127.0.0.1", port))) for port in list(ports) * connections]
    for guesser in guessers:
        guesser.connection.setblocking(False)
        selector.register(guesser.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, guesser)
        guesser.turn()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for key, _ in selector.select(0.1):
            key.data.turn()
        # Waiting for answers, the sockets are always writable: not all of a core is to go into finding that.
        time.sleep(0.001)
    selector.close()
    total: Counter[str] = Counter()
    for guesser in guessers:
        guesser.connection.close()
        total.update({status.decode(): count for status, count in guesser.statuses.items()})
    return total


# -- bodies ------------------------------------------------------------------------------------


def giant_bodies(ports: Sequence[int], *, key: str, rounds: int) -> dict[str, Counter[str]]:
    """Each kind of body, so many times, four at once; the statuses by kind."""
    found: dict[str, Counter[str]] = {}
    for name, send in BODIES.items():
        counter = found.setdefault(name, Counter())
        threads = [
            threading.Thread(target=_count, args=(counter, send, ports[number % len(ports)], key))
            for number in range(rounds)
        ]
        for start in range(0, rounds, 4):
            for thread in threads[start : start + 4]:
                thread.start()
            for thread in threads[start : start + 4]:
                thread.join()
    return found


def _count(counter: Counter[str], send: Callable[[socket.socket, bytes], None], port: int, key: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as connection:
        # A server that refuses early ends the connection while we still send.
        with suppress(OSError):
            send(connection, CHAT + b"authorization: Bearer " + key.encode() + b"\r\n")
        try:
            status = connection.recv(12)[9:12].decode() or "closed"
        except TimeoutError:
            status = "no answer"
        except OSError:
            status = "closed"
        counter[status] += 1


def _announce_gigabyte(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head + b"content-length: 1000000000\r\n\r\n")


def _send_without_end(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head + b"transfer-encoding: chunked\r\n\r\n")
    piece = b"%x\r\n%s\r\n" % (MEGABYTE, b" " * MEGABYTE)
    for _ in range(ENDLESS_BYTES // MEGABYTE):
        connection.sendall(piece)


def _send_deep(connection: socket.socket, head: bytes) -> None:
    _send_body(connection, head, b'{"model":"bench-model","messages":' + b"[" * (19 * MEGABYTE) + b"}")


def _send_long(connection: socket.socket, head: bytes) -> None:
    message = {"role": "user", "content": "word " * (19 * MEGABYTE // 5)}
    _send_body(connection, head, json.dumps({"model": "bench-model", "messages": [message]}).encode())


def _send_head(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head + b"x-long: " + b"x" * MEGABYTE + b"\r\n\r\n")


def _send_body(connection: socket.socket, head: bytes, body: bytes) -> None:
    connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)


BODIES: dict[str, Callable[[socket.socket, bytes], None]] = {
    "1 GB announced": _announce_gigabyte,
    "64 MB in chunks": _send_without_end,
    "19 MB of brackets": _send_deep,
    "19 MB of words": _send_long,
    "1 MB of header": _send_head,
}
