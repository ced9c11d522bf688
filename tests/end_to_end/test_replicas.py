"""Several servers of one model: one may die, hang or say it is full, and the others go on."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.upstreams import CONNECT_TIMEOUT_SECONDS
from tests.end_to_end.traffic import Plan, run
from tests.fake_upstream import replies
from tests.fake_upstream.server import fake_upstream
from tests.installation import Installation, installation
from tests.services import dead_port, wait_until


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as made:
        yield made


def configure(
    installed: Installation, urls: list[str], *, kind: str = "openai", models: str = '["MiniCPM5-2B"]'
) -> Path:
    file = installed.folder / "upstreams.toml"
    file.write_text(
        "".join(
            f'[[upstream]]\nname = "replica-{number}"\nkind = "{kind}"\nbase_url = "{url}"\nmodels = {models}\n'
            for number, url in enumerate(urls)
        )
    )
    installed.environment["UPSTREAMS_FILE"] = str(file)
    return file


def served_by(installed: Installation) -> Counter[str]:
    return Counter(row[0] for row in installed.query("select upstream from billing_usagerecord"))


def test_a_replica_killed_under_load_loses_no_request_that_had_not_begun_to_stream(installed: Installation) -> None:
    doomed_url, other_url = installed.start_demo("--pace-seconds", "0"), installed.start_demo("--pace-seconds", "0")
    doomed = installed.processes[0]
    configure(installed, [doomed_url, other_url])
    web = installed.start_web()
    plans = [Plan("MiniCPM5-2B", f"Request {number} [[tokens=5]]", stream=False) for number in range(300)]

    async def with_a_death_in_the_middle() -> int:
        running = asyncio.create_task(run(plans, url=web.url, secret=installed.secret, at_once=16))
        await asyncio.to_thread(_wait_for_lines, installed.folder / "demo.jsonl", 80)
        doomed.send_signal(signal.SIGKILL)
        return sum(one.ended for one in await running)

    assert asyncio.run(with_a_death_in_the_middle()) == 300
    wait_until(lambda: sum(served_by(installed).values()) == 300, what="300 records")
    assert served_by(installed)["replica-0"] > 0


def test_only_streams_that_had_begun_are_cut_by_a_death(installed: Installation) -> None:
    doomed_url, other_url = installed.start_demo("--pace-seconds", "0"), installed.start_demo("--pace-seconds", "0")
    doomed = installed.processes[0]
    configure(installed, [doomed_url, other_url])
    web = installed.start_web()

    async def read(client: httpx.AsyncClient, number: int, gate: asyncio.Semaphore) -> tuple[int, bool]:
        """How many events came, and whether the last one was the end."""
        asked = [{"role": "user", "content": f"Story {number} [[tokens=20]] [[pace=0.02]]"}]
        body = {"model": "MiniCPM5-2B", "messages": asked, "stream": True}
        async with gate, client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
            assert lines[-1] == "data: [DONE]" or '"error"' in lines[-1]
            return len([line for line in lines if "choices" in line]), lines[-1] == "data: [DONE]"

    async def with_a_death_in_the_middle() -> list[tuple[int, bool]]:
        headers, gate = {"Authorization": f"Bearer {installed.secret}"}, asyncio.Semaphore(16)
        async with httpx.AsyncClient(base_url=web.url, headers=headers, timeout=60) as client:
            running = asyncio.gather(*(read(client, number, gate) for number in range(80)))
            await asyncio.to_thread(_wait_for_lines, installed.folder / "demo.jsonl", 20)
            doomed.send_signal(signal.SIGKILL)
            return await running

    seen = asyncio.run(with_a_death_in_the_middle())
    cut = [events for events, ended in seen if not ended]
    assert all(events > 0 for events in cut)
    assert 0 < len(cut) <= 16


def test_a_replica_that_was_ejected_is_tried_again_and_comes_back(installed: Installation) -> None:
    with fake_upstream() as failing, fake_upstream() as other:
        configure(installed, [failing.url, other.url])
        web = installed.start_web()
        fine = replies.answer(replies.completion())
        failing.then(replies.answer({"error": "full"}, status=503), *[fine] * 50)
        other.then(*[fine] * 2_000)
        # Refused by the first, answered by the second; then the first is left alone until its rest is over.
        assert _ask(web.url, installed.secret).status_code == 200
        assert (len(failing.received), len(other.received)) == (1, 1)
        assert _ask(web.url, installed.secret).status_code == 200
        assert len(failing.received) == 1

        def comes_back() -> bool:
            assert _ask(web.url, installed.secret).status_code == 200
            return len(failing.received) > 1

        wait_until(comes_back, what="the replica being asked again")


def test_a_black_hole_costs_one_connect_time_out(installed: Installation) -> None:
    # A listener whose backlog is full takes no connection and refuses none.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as hole:
        address = hole.getsockname()
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        configure(installed, [f"http://127.0.0.1:{address[1]}/v1", installed.start_demo("--pace-seconds", "0")])
        web = installed.start_web()
        plans = [Plan("MiniCPM5-2B", "Hello [[tokens=3]]", stream=False) for _ in range(30)]
        seen = asyncio.run(run(plans, url=web.url, secret=installed.secret, at_once=4))
        for filler in fillers:
            filler.close()
    assert all(one.ended for one in seen)
    wait_until(lambda: served_by(installed) == Counter({"replica-1": 30}), what="30 records of the other replica")
    sql = "select (julianday(first_byte_at) - julianday(started_at)) * 86400 from billing_usagerecord"
    waited = [row[0] for row in installed.query(sql)]
    # Twice would be ten seconds; the first calls did wait.
    assert CONNECT_TIMEOUT_SECONDS - 0.1 < max(waited) < 2 * CONNECT_TIMEOUT_SECONDS


def test_a_full_replica_is_left_for_another_and_all_full_is_said(installed: Installation) -> None:
    configure(installed, [installed.start_demo("--pace-seconds", "0")])
    file = Path(installed.environment["UPSTREAMS_FILE"])
    file.write_text(file.read_text() + "max_concurrency = 2\n")
    web = installed.start_web()

    async def four_at_once() -> list[httpx.Response]:
        body = {
            "model": "MiniCPM5-2B",
            "messages": [{"role": "user", "content": "Hello [[tokens=20]] [[pace=0.1]]"}],
            "stream": True,
        }
        headers = {"Authorization": f"Bearer {installed.secret}"}
        async with httpx.AsyncClient(timeout=30) as client:
            url = f"{web.url}/v1/chat/completions"
            return await asyncio.gather(*(client.post(url, json=body, headers=headers) for _ in range(4)))

    answers = asyncio.run(four_at_once())
    assert Counter(answer.status_code for answer in answers) == {200: 2, 429: 2}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "model_concurrency_rate_limit_exceeded"


def test_a_dead_server_is_a_bad_gateway(installed: Installation) -> None:
    configure(installed, [f"http://127.0.0.1:{dead_port()}/v1"])
    answer = _ask(installed.start_web().url, installed.secret)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unavailable")


def test_sighup_reads_the_file_again_and_a_wrong_one_changes_nothing(installed: Installation) -> None:
    url = installed.start_demo("--pace-seconds", "0")
    file = configure(installed, [url])
    web = installed.start_web()
    assert _models(web.url, installed.secret) == ["MiniCPM5-2B"]
    file.write_text(file.read_text().replace("MiniCPM5-2B", "Gemma-4-31B-IT"))
    web.process.send_signal(signal.SIGHUP)
    wait_until(lambda: _models(web.url, installed.secret) == ["Gemma-4-31B-IT"], what="the new model")
    file.write_text("[[upstream]]\nname = 7\n")
    web.process.send_signal(signal.SIGHUP)
    log = installed.folder / "web.log"
    wait_until(lambda: "upstreams were not reloaded" in log.read_text(), what="the refusal in the log")
    assert _models(web.url, installed.secret) == ["Gemma-4-31B-IT"]


def _ask(url: str, secret: str) -> httpx.Response:
    return httpx.post(
        f"{url}/v1/chat/completions",
        json={"model": "MiniCPM5-2B", "messages": [{"role": "user", "content": "Hello [[tokens=3]]"}]},
        headers={"Authorization": f"Bearer {secret}"},
        timeout=30,
    )


def _models(url: str, secret: str) -> list[str]:
    answer = httpx.get(f"{url}/v1/models", headers={"Authorization": f"Bearer {secret}"})
    return [model["id"] for model in answer.json()["data"]]


def _wait_for_lines(path: Path, count: int) -> None:
    wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= count, what=f"{count} generated answers")
