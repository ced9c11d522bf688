"""The ASGI server of one web process: uvicorn on uvloop and httptools.

Run as `python -m config.server --fd N` by `manage.py up`, or with `--host` and `--port` behind one's own
supervisor. SIGTERM (and SIGINT) drain: no new connections, open answers finish for up to DRAIN_SECONDS.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

BACKLOG = 2048
SWITCH_INTERVAL_SECONDS = 0.0001
GC_THRESHOLD = 20_000


class TickTransport:
    """Joins what is written within one tick of the loop into one write: a system call saved on each answer."""

    __slots__ = ("_loop", "_pieces", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        pieces, self._pieces = self._pieces, []
        # The client may have gone since the bytes were written.
        if pieces and not self._transport.is_closing():
            self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class TickProtocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(TickTransport(transport, self.loop))  # type: ignore[arg-type]


def config(*, drain_seconds: int) -> uvicorn.Config:
    return uvicorn.Config(
        "config.asgi:application",
        loop="uvloop",
        http=TickProtocol,
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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m config.server", description=__doc__)
    parser.add_argument("--fd", type=int, help="an inherited listening socket")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--drain-seconds", type=int, help="default: DRAIN_SECONDS")
    options = parser.parse_args()
    sock = listen(options.host, options.port) if options.fd is None else socket.socket(fileno=options.fd)

    import django

    django.setup(set_prefix=False)
    from django.conf import settings

    # The shipper's thread must hand the interpreter back at once: by default a request waits 5 ms for it.
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    # What exists by now lives as long as the process: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    drain_seconds = settings.DRAIN_SECONDS if options.drain_seconds is None else options.drain_seconds
    uvicorn.Server(config(drain_seconds=drain_seconds)).run(sockets=[sock])


if __name__ == "__main__":
    import os

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    main()
