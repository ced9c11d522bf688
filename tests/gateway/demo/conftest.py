"""One demo backend, a process on a socket as in real life, for all the tests beside this file."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.demo.client import Demo

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    log = tmp_path_factory.mktemp("demo") / "requests.jsonl"
    command = [sys.executable, "-m", "gateway.demo", "--port", "0", "--log", str(log), "--pace-seconds", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        with httpx.Client(base_url=address, timeout=30) as http:
            yield Demo(http=http, log=log)
        process.terminate()
        assert process.wait(10) == 0
