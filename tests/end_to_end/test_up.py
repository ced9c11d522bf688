"""`manage.py up` as a newcomer runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from config.server import listen
from tests import secrecy
from tests.forked import ROOT
from tests.installation import PRODUCT_VARIABLES
from tests.services import free_port, wait_until


class Up:
    """One run of the command, its output in a file."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.log = folder / "up.log"
        self.port = free_port()
        inherited = {name: value for name, value in os.environ.items() if name not in PRODUCT_VARIABLES}
        inherited.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "up", "--port", str(self.port), *arguments],
                env=inherited | {"DATA_DIR": str(folder / "var"), "PYTHONUNBUFFERED": "1"} | environment,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait(self) -> str:
        wait_until(lambda: "Ctrl-C" in self.output or self.process.poll() is not None, what="the banner", seconds=60)
        return self.output

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def children(self) -> list[int]:
        tasks = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in tasks.read_text().split()]

    def interrupt(self) -> None:
        """Ctrl-C, and the end of the command."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The key and the password are printed once, and kept in nothing that the command leaves there."""
    yield tmp_path
    secrecy.check_folder(tmp_path / "var")


def test_it_serves_stops_all_its_processes_and_finds_everything_again(folder: Path) -> None:
    first = Up(folder)
    output = first.wait()
    secret = re.search(r"rc-[0-9a-f]{48}", output)
    assert secret, output
    assert f"is up at http://localhost:{first.port}" in output
    password = re.search(r"sign in +owner@localhost +password (\S+)", output)
    assert password, output
    secrecy.is_secret(password[1])
    assert "the demo backend answers, which is no model" in output
    assert _chat(first, secret[0]) == 200
    children = first.children()
    assert len(children) == 4
    first.interrupt()
    assert first.process.returncode == 0
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []

    second = Up(folder)
    output = second.wait()
    assert "rc-" not in output
    assert _chat(second, secret[0]) == 200
    second.interrupt()


def test_a_process_that_dies_is_started_again_and_all_end_with_their_parent(folder: Path) -> None:
    up = Up(folder)
    secret = re.search(r"rc-[0-9a-f]{48}", up.wait())
    assert secret
    web = next(pid for pid in up.children() if b"config.server" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(web, signal.SIGKILL)
    wait_until(lambda: "web 1 had ended and was started again" in up.output, what="the restart")
    wait_until(lambda: _chat(up, secret[0]) == 200, what="an answer of the new process")

    children = up.children()
    up.process.kill()
    up.process.wait()
    wait_until(lambda: not any(_runs(pid) for pid in children), what="the end of the children")


def test_a_taken_port_is_said_plainly(folder: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        up = Up(folder, "--port", str(port))
        assert up.process.wait(60) == 1
    assert f"Cannot listen on 127.0.0.1:{port}" in up.output
    assert "Traceback" not in up.output


def test_more_web_processes_need_redis(folder: Path) -> None:
    up = Up(folder, "--workers", "2")
    assert up.process.wait(60) == 1
    assert "More than one web process needs REDIS_URL" in up.output


def test_a_bad_upstreams_file_is_named(folder: Path) -> None:
    file = folder / "upstreams.toml"
    file.write_text('[[upstream]]\nname = "a"\nbase_url = "ftp://x"\n')
    up = Up(folder, UPSTREAMS_FILE=str(file))
    assert up.process.wait(60) == 1
    assert "upstream a: base_url must be an http or https address" in up.output


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _chat(up: Up, secret: str) -> int:
    try:
        answer = httpx.post(
            f"{up.url}/v1/chat/completions",
            headers={"Authorization": f"Bearer {secret}"},
            json={"model": "MiniCPM5-2B", "messages": [{"role": "user", "content": "Hello"}]},
            timeout=20,
        )
    except httpx.HTTPError:
        return 0
    return answer.status_code
