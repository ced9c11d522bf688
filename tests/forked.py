"""Python processes that begin where their imports end: forked from one that has what all of them import.

A start of the product takes seconds of work on a slow machine, most of it imports, and the tests start it a hundred
times. Each process is otherwise the one that `python -m …` would be: its own arguments, environment and output.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 1024 * 1024
STDERR = 2
# What takes long to import and asks for no settings.
IMPORTED = (
    "celery.apps.worker", "celery.beat", "celery.bin.celery", "celery.concurrency.prefork", "celery.worker.consumer",
    "cryptography.hazmat.primitives.ciphers.aead", "django.contrib.admin.options", "django.core.asgi",
    "django.core.cache.backends.redis", "django.core.management", "django.db.backends.postgresql.base",
    "django.db.backends.sqlite3.base", "django.forms", "django.template.backends.django", "django.views.generic",
    "fido2", "httpx", "kombu.transport.filesystem", "kombu.transport.redis", "markdown_it", "nh3", "orjson",
    "prometheus_client", "psycopg", "pygments", "redis.asyncio", "requests", "tomllib",
    "uvicorn.protocols.http.httptools_impl", "uvloop",
)  # fmt: skip


class ForkedProcess:
    """As much of `subprocess.Popen` as there is use for."""

    def __init__(self, parent: Parent, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._parent = parent
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._parent.ask({"poll": self.pid})
            if self.returncode is not None:
                os.close(self._descriptor)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None and not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Parent:
    """The process that forks, and the way to ask it."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Its messages are whole environments.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES)
        self._lock = threading.Lock()
        with other:
            command = [sys.executable, "-m", __name__, str(other.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[other.fileno()])
        atexit.register(self.end)

    def start(self, arguments: Sequence[str], *, environment: Mapping[str, str], fds: Sequence[int]) -> ForkedProcess:
        """`arguments` are Python's. Of `fds` the first two become output and error, the others keep their numbers."""
        asked = {"arguments": list(arguments), "environment": dict(environment), "fds": list(fds)}
        return ForkedProcess(self, self.ask(asked, fds=fds))

    def ask(self, question: dict[str, Any], *, fds: Sequence[int] = ()) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(question).encode()], fds)
            return json.loads(self._socket.recv(MAX_BYTES))

    def end(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def parent() -> Parent:
    return Parent()


def printed(arguments: Sequence[str], *, environment: Mapping[str, str]) -> str:
    """Run Python to its end; its standard output. Raises CalledProcessError."""
    reading, writing = os.pipe()
    try:
        process = parent().start(arguments, environment=environment, fds=[writing, STDERR])
    finally:
        os.close(writing)
    with os.fdopen(reading) as file:
        output = file.read()
    if code := process.wait():
        error = subprocess.CalledProcessError(code, list(arguments), output)
        error.add_note(output)
        raise error
    return output


# -- in the process that forks -------------------------------------------------------------------


def serve(connection: socket.socket) -> None:
    """Until the other side is gone, whose children then go too."""
    children: set[int] = set()
    while True:
        message, fds, _, _ = socket.recv_fds(connection, MAX_BYTES, 16)
        if not message:
            break
        question = json.loads(message)
        if "poll" in question:
            answer = _ended(question["poll"])
            children -= {question["poll"]} if answer is not None else set()
        else:
            answer = os.fork()
            if not answer:
                connection.close()
                _become(question, fds)
            children.add(answer)
        for descriptor in fds:
            os.close(descriptor)
        connection.send(json.dumps(answer).encode())
    for pid in children:
        os.kill(pid, signal.SIGKILL)


def _ended(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _become(question: dict[str, Any], fds: list[int]) -> None:
    """Never returns: ends as the program ends."""
    wanted = question["fds"]
    # Out of the way of the numbers that are wanted.
    held = [os.dup2(descriptor, 500 + place) for place, descriptor in enumerate(fds)]
    for descriptor in fds:
        os.close(descriptor)
    for descriptor, number in zip(held, [1, 2, *wanted[2:]], strict=True):
        os.dup2(descriptor, number)
    for descriptor in held:
        os.close(descriptor)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(question["environment"])
    code = 1
    try:
        _run(question["arguments"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 -- as the interpreter ends with it
        sys.excepthook(*sys.exc_info())
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(arguments: list[str]) -> None:
    sys.path[0] = str(ROOT)
    kind, program, *rest = arguments
    sys.argv = [program if kind == "-m" else kind, *rest]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 -- python -c


if __name__ == "__main__":
    # Ctrl-C is for the tests, which then end this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in IMPORTED:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        serve(listening)
