"""`manage.py up`: everything on one machine under one Ctrl-C."""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from io import StringIO
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from accounts.bootstrap import Bootstrap, first_owner
from config.processes import Child, Family, Hopeless
from config.server import listen
from gateway.runtime import RuntimeSettings

# Ctrl-C promises an end within 5 s: the demo backend and this process need the rest.
INTERRUPT_SECONDS = 3.0
INTERRUPT_DRAIN_SECONDS = 2
START_SECONDS = 30.0


class Command(BaseCommand):
    help = (
        "Migrate, load catalog and rate card, make the first owner and key, then run the web server, a Celery worker, "
        "beat and, without an upstream of your own, the demo backend. Ctrl-C ends them all."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port to listen on (default %(default)s)")
        parser.add_argument("--workers", type=int, default=1, help="web processes; more than one needs REDIS_URL")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["workers"] > 1 and not settings.REDIS_URL:
            raise CommandError(
                "More than one web process needs REDIS_URL: limits and signals are shared through Redis."
            )
        _check_gateway()
        web_socket = _listen(options["host"], options["port"])
        port = web_socket.getsockname()[1]
        call_command("migrate", verbosity=0, interactive=False)
        call_command("load_rates", stdout=StringIO())
        owner = first_owner()
        address = os.environ.get("SITE_URL", "").rstrip("/") or f"http://localhost:{port}"
        family = _family(web_socket, workers=options["workers"], address=address)
        stopper = _Stopper()
        family.start()
        try:
            self._wait_until_serving(family, port, options["host"])
            self._announce(address, owner)
            self._watch(family, stopper)
        except Hopeless as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            self.stdout.write("\nStopping …")
        finally:
            seconds = INTERRUPT_SECONDS if stopper.signal != signal.SIGTERM else settings.DRAIN_SECONDS + 5
            family.stop(within_seconds=seconds)

    def _wait_until_serving(self, family: Family, port: int, host: str) -> None:
        reachable = "127.0.0.1" if host in ("0.0.0.0", "") else host  # noqa: S104 -- compared, not bound
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            family.restart_dead()
            try:
                urllib.request.urlopen(f"http://{reachable}:{port}/healthz", timeout=1).close()
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
            else:
                return
        raise CommandError(f"The web server did not answer within {START_SECONDS:g} s; its messages are above.")

    def _announce(self, address: str, owner: Bootstrap | None) -> None:
        write = self.stdout.write
        write("")
        write(self.style.SUCCESS(f"{settings.SITE_NAME} is up at {address}"))
        if owner:
            write(f"  sign in    {owner.email}  password {owner.password}")
            write(f"  API key    {owner.secret}")
            write("             Both are shown this once: keep them.")
        else:
            write("  Sign in with your account; keys are made at /keys/ or with: manage.py issue_key --team … --name …")
        if not _own_upstreams():
            write(
                self.style.WARNING(
                    "  No model server is configured: the demo backend answers, which is no model.\n"
                    "  Set UPSTREAM_URL=http://host:port/v1 to serve your own."
                )
            )
        write("  Ctrl-C stops everything.\n")
        self.stdout.flush()

    def _watch(self, family: Family, stopper: _Stopper) -> None:
        signal.signal(signal.SIGHUP, lambda number, frame: family.send(signal.SIGHUP, to="web"))
        while stopper.signal is None:
            for child in family.restart_dead():
                self.stderr.write(f"{child.name} had ended and was started again")
            time.sleep(0.25)
        raise KeyboardInterrupt


class _Stopper:
    """Remembers the signal that asked to stop."""

    def __init__(self) -> None:
        self.signal: int | None = None
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.signal = number


def _check_gateway() -> None:
    """Say at once what the web processes would refuse to start with."""
    try:
        RuntimeSettings.from_django()
    except ValueError as error:
        raise CommandError(str(error)) from None


def _own_upstreams() -> bool:
    return bool(settings.UPSTREAM_URL or settings.UPSTREAMS_FILE)


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        raise CommandError(f"Cannot listen on {host}:{port}: {error.strerror}. Another --port may be free.") from None


def _family(web_socket: socket.socket, *, workers: int, address: str) -> Family:
    """The processes in the order they start; the backend ends last, for streams that are still open."""
    environment = {**os.environ, "SITE_URL": address}
    family = Family()
    if not _own_upstreams():
        demo_socket = listen("127.0.0.1", 0)
        environment["DEMO_URL"] = f"http://127.0.0.1:{demo_socket.getsockname()[1]}/v1"
        # Detached, it stays open in this process: a restarted child listens on the same address.
        demo_fd = demo_socket.detach()
        arguments = ["-m", "gateway.demo", "--fd", str(demo_fd)]
        if settings.DEMO_LOG:
            arguments += ["--log", str(settings.DEMO_LOG)]
        family.children.append(Child("demo backend", arguments, environment, stop_order=1, descriptors=[demo_fd]))
    fd = web_socket.fileno()
    for number in range(workers):
        arguments = ["-m", "config.server", "--fd", str(fd)]
        family.children.append(Child(f"web {number + 1}", arguments, environment, descriptors=[fd]))
    celery = ["-m", "celery", "-A", "config.celery:app", "--quiet"]
    worker = [*celery, "worker", "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    beat = [*celery, "beat", "--loglevel", "WARNING", "--pidfile", ""]
    family.children.append(Child("worker", worker, environment))
    family.children.append(Child("beat", beat, environment))
    return family
