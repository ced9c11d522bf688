"""`python -m gateway.demo` as whoever starts it sees it."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "gateway.demo"]


def started(*arguments: str, inherit: tuple[int, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, pass_fds=inherit
    )


def address_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().removeprefix("listening on ").strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ends_at_once_and_cleanly_with_a_stream_open(number: signal.Signals) -> None:
    body = {"model": "MiniCPM5-2B", "stream": True, "messages": [{"role": "user", "content": "Hi [[tokens=90000]]"}]}
    with started() as process:
        address = address_of(process)
        with httpx.stream("POST", f"{address}/v1/chat/completions", json=body, timeout=30) as answer:
            next(answer.iter_lines())
            process.send_signal(number)
            assert process.wait(5) == 0
        _, complaints = process.communicate()
    assert complaints == ""


def test_listens_on_an_inherited_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with started("--fd", str(listener.fileno()), inherit=(listener.fileno(),)) as process:
            assert address_of(process) == f"http://127.0.0.1:{port}"
            assert httpx.get(f"http://127.0.0.1:{port}/health").json() == {"status": "ok"}
            process.terminate()
            assert process.wait(5) == 0


def test_serves_cards_of_ones_own(tmp_path: Path) -> None:
    cards = tmp_path / "mine.toml"
    cards.write_text('[[model]]\nid = "mine"\n', encoding="utf-8")
    with started("--catalog", str(cards)) as process:
        listed = httpx.get(f"{address_of(process)}/v1/models").json()
        process.terminate()
        process.communicate()
    assert listed["data"][-1]["id"] == "mine"


def test_a_bad_catalog_is_told_in_one_line(tmp_path: Path) -> None:
    cards = tmp_path / "mine.toml"
    cards.write_text("[[model]]\n", encoding="utf-8")
    run = subprocess.run([*COMMAND, "--catalog", str(cards)], capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 2
    assert run.stderr == f"{cards}: model number 1: field id: is required\n"


def test_neither_catalog_nor_demo_needs_django() -> None:
    code = "import sys, gateway.catalog, gateway.demo.__main__; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
