"""`python -m gateway.demo`: the demo backend on a socket, under uvicorn."""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gateway.catalog import BUNDLED, CatalogError, load
from gateway.demo.app import DemoBackend, app
from gateway.demo.connection import CLIENT_GONE
from gateway.demo.settings import Settings


class _Protocol(HttpToolsProtocol):
    """Tells the application of a client's leaving at once, not some turns of the loop later.

    From the end of the client's side on, uvicorn drops what is written: a token counted
    then would be one that was never sent.
    """

    def eof_received(self) -> None:
        self._mark()
        super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._mark()
        super().connection_lost(exc)

    def _mark(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            return
        scope: Any = self.cycle.scope
        scope[CLIENT_GONE] = True
        self.cycle.disconnected = True
        self.cycle.message_event.set()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal again after its shutdown; ours exits with 0.
        yield


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gateway.demo",
        description="A backend without a model. It behaves on the wire as each catalog model's own "
        "backend does and answers with text about the prompt.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one (default)")
    parser.add_argument("--fd", type=int, help="listen on this inherited socket instead of host and port")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append one JSON line per request to FILE")
    parser.add_argument(
        "--pace-seconds",
        type=float,
        default=0.02,
        metavar="S",
        help="seconds between streamed tokens; 0 streams as fast as it can (default: %(default)s)",
    )
    parser.add_argument(
        "--catalog",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="cards that lie over the bundled catalog; may be given several times",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        catalog = load(BUNDLED, *options.catalog)
    except CatalogError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command's own output
        return 2
    listener = _listener(host=options.host, port=options.port, fd=options.fd)
    backend = app(Settings(catalog=catalog, pace_seconds=options.pace_seconds, log=options.log))
    with listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(backend, listener))
    return 0


def _listener(*, host: str, port: int, fd: int | None) -> socket.socket:
    if fd is not None:
        return socket.socket(fileno=fd)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048)


async def _serve(backend: DemoBackend, listener: socket.socket) -> None:
    config = uvicorn.Config(
        backend,
        http=_Protocol,
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
    )
    server = _Server(config)

    def stop() -> None:
        # No waiting for streams: a backend that is told to go, goes. The calls it cuts
        # write their log lines, and uvicorn need not report each one.
        server.should_exit = server.force_exit = True
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    # Connections queue at the bound socket from here on, so the address may be told.
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"listening on http://{shown}:{port}", flush=True)  # noqa: T201 - read by whoever started it
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())
