"""The ASGI server of one web process: uvicorn on uvloop and httptools.

Run as `python -m config.server --fd N` by `manage.py up`, or with `--host` and `--port` behind one's own
supervisor. SIGTERM (and SIGINT) drain: no new connections, open answers finish for up to DRAIN_SECONDS.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import socket
import sys
from collections import deque
from collections.abc import Awaitable
from functools import lru_cache
from importlib import import_module
from typing import Any
from urllib.parse import unquote

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from config.awaitables import NOTHING_TO_AWAIT, LateEvent

BACKLOG = 2048
ACCEPTED_AT_ONCE = 16
SWITCH_INTERVAL_SECONDS = 0.0001
# Of objects made, of collections of the youngest, of those of the next older. A thousand streams are 150,000 objects:
# to look at all of them takes 60 ms, for which everybody waits. Streams leave nothing behind that needs it.
GC_THRESHOLDS = (10_000, 200, 10)
# A head that is not whole by then is refused. One read of the socket, which may hold the end of the request before,
# is 256 KiB at most.
MAX_HEAD_BYTES = 512 * 1024
# A body, or nothing, is being read.
NO_HEAD = -1
NOWHERE: deque[tuple[bytes, bytes]] = deque(maxlen=0)
LONGEST_KNOWN_URL = 128
LF, CR, NUL = 0x0A, 0x0D, 0x00
ASGI_VERSION = {"version": "3.0", "spec_version": "2.3"}


class Cycle(RequestResponseCycle):
    """One request and its answer, with less to do for each than uvicorn's own: a body that is there is handed over
    without waiting, and the head of an answer whose length is known leaves with its body, in one write."""

    logger = logging.getLogger("uvicorn.error")

    def __init__(self, protocol: Protocol, scope: Any, keep_alive: bool) -> None:
        self.scope = scope
        self.transport = protocol.transport
        self.flow = protocol.flow
        self.on_response = protocol.on_response_complete
        self.keep_alive = keep_alive
        self.message_event = LateEvent()  # type: ignore[assignment]
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.waiting_for_100_continue = protocol.expect_100_continue
        self.response_started = False
        self.response_complete = False
        self.chunked_encoding = False
        self.expected_content_length = 0
        # By the loop's clock.
        self.ended_at = 0.0
        self._head = b""
        self._is_head = False

    async def receive(self) -> Any:
        if self.more_body or self.waiting_for_100_continue or self.disconnected or not self.message_event.is_set():
            return await super().receive()
        self.message_event.clear()
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": False}

    def send(self, message: Any) -> Awaitable[None]:  # type: ignore[override]
        """At once, unless the client must catch up first."""
        if self.flow.write_paused and not self.disconnected:
            return self._send_later(message)
        self._send_now(message)
        return NOTHING_TO_AWAIT

    async def _send_later(self, message: Any) -> None:
        await self.flow.drain()
        self._send_now(message)

    def _send_now(self, message: Any) -> None:
        if self.disconnected:
            return
        if not self.response_started:
            self._start(message)
        elif self.response_complete:
            raise RuntimeError(f"{message['type']} after the end of the answer")
        else:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, message: Any) -> None:
        self.response_started = True
        self.waiting_for_100_continue = False
        status, headers = message["status"], message.get("headers", ())
        lines = [*map(b": ".join, headers)]
        named = dict(headers)
        # Django's names have capitals.
        length = named.get(b"content-length") or named.get(b"Content-Length")
        self._is_head = self.scope["method"] == "HEAD"
        has_body = not self._is_head and status not in (204, 304)
        if length is not None:
            self.expected_content_length = int(length)
            self.chunked_encoding = False
        elif has_body:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked")
        if (connection := named.get(b"connection") or named.get(b"Connection")) and b"close" in connection.lower():
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close")
        text = b"".join(lines)
        if LF in text or CR in text or NUL in text:
            raise RuntimeError("a header holds a line end")
        lines += (b"", b"")
        head = STATUS_LINE[status] + b"\r\n".join(lines)
        if self.expected_content_length and has_body:
            self._head = head
        else:
            self.transport.write(head)

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self._is_head:
            self.expected_content_length = 0
        elif self.chunked_encoding:
            if body:
                body = b"%x\r\n%s\r\n" % (len(body), body)
            if not more:
                body += b"0\r\n\r\n"
            if body:
                self.transport.write(body)
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("the answer is longer than its content-length")
            if self._head:
                body, self._head = self._head + body, b""
            if body:
                self.transport.write(body)
        if not more:
            self._finish()

    def _finish(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("the answer is shorter than its content-length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _parsed(url: bytes) -> tuple[bytes, str, bytes]:
    """A request's target as its raw path, its path, and its query."""
    parsed = httptools.parse_url(url)
    path = parsed.path.decode("ascii")
    return parsed.path, unquote(path) if "%" in path else path, parsed.query or b""


# Programs call the same few again and again.
_place = lru_cache(maxsize=1024)(_parsed)


class Protocol(HttpToolsProtocol):
    """uvicorn's, with `Cycle`, and one timer a connection for its idle time instead of one a request. What has come of
    a request is read before it begins, which it does at once: most run up to their call of the model server so."""

    # The last request's; None before the first.
    cycle: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # With these an instance has 30 attributes, the most that Python reads and writes quickly.
        self._arrived: Cycle | None = None
        self._head_bytes = NO_HEAD

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_bytes != NO_HEAD:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse_head()
        if (cycle := self._arrived) is not None:
            self._arrived = None
            task = asyncio.Task(cycle.run_asgi(self.app), loop=self.loop, eager_start=True)
            if not task.done():
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self._head_bytes = 0

    def _refuse_head(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.send_400_response("The request's head is too large.")
        else:
            # An answer is on its way, into which nothing may be written.
            self.transport.close()

    def on_headers_complete(self) -> None:
        parser = self.parser
        raw_path, path, query = _place(self.url) if len(self.url) < LONGEST_KNOWN_URL else _parsed(self.url)
        version = parser.get_http_version()
        scope: Any = {
            "type": "http",
            "asgi": ASGI_VERSION,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
        }
        self._head_bytes = NO_HEAD
        # What comes behind the body as headers is nobody's.
        self.headers = NOWHERE  # type: ignore[assignment]
        before, cycle = self.cycle, Cycle(self, scope, version != "1.0" and parser.should_keep_alive())
        self.cycle = cycle
        if before is None or before.response_complete:
            self._arrived = cycle
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look_again(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Uvicorn asks for it when a byte comes; here a whole head ends the wait, which a client cannot draw out."""

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.cycle.ended_at = self.loop.time()

    def _look_again(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._end_idle)

    def _end_idle(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None:
            idle_seconds = float(self.timeout_keep_alive)
        else:
            idle_seconds = self.loop.time() - cycle.ended_at if cycle.response_complete else 0.0
        if idle_seconds >= self.timeout_keep_alive:
            self.transport.close()
        else:
            self._look_again(self.timeout_keep_alive - idle_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)


def config(*, drain_seconds: int) -> uvicorn.Config:
    return uvicorn.Config(
        "config.asgi:application",
        interface="asgi3",
        loop="uvloop",
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=drain_seconds,
        timeout_keep_alive=75,
        backlog=BACKLOG,
    )


def listen(host: str, port: int) -> socket.socket:
    sock = bound(host, port)
    sock.listen(BACKLOG)
    return sock


def handles(sock: socket.socket) -> list[socket.socket]:
    """The listening socket several times over, for libuv, which takes one connection off each when its turn comes.

    A thousand streams make a turn long: with one handle new requests would wait for seconds to be seen.
    """
    return [sock, *(sock.dup() for _ in range(1, ACCEPTED_AT_ONCE))]


def bound(host: str, port: int) -> socket.socket:
    """The address is taken, and whoever connects is refused until somebody listens."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def spare_the_collector() -> None:
    """What exists by now lives as long as the process: it need not be looked at again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m config.server", description=__doc__)
    parser.add_argument("--fd", type=int, help="an inherited listening socket")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--drain-seconds", type=int, help="default: DRAIN_SECONDS")
    options = parser.parse_args()
    # Uvicorn listens once the application has started: until then a proxy is refused and asks another process, where
    # in the queue of one that starts its requests would wait for seconds.
    sock = bound(options.host, options.port) if options.fd is None else socket.socket(fileno=options.fd)

    import django

    django.setup(set_prefix=False)
    from django.conf import settings

    # All code is there before the first request, whatever it asks for, and before the collector is told what stays.
    for module in ("config.asgi", settings.ROOT_URLCONF):
        import_module(module)
    # The shipper's thread must hand the interpreter back at once: by default a request waits 5 ms for it.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    spare_the_collector()
    drain_seconds = settings.DRAIN_SECONDS if options.drain_seconds is None else options.drain_seconds
    uvicorn.Server(config(drain_seconds=drain_seconds)).run(sockets=handles(sock))


if __name__ == "__main__":
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    main()
