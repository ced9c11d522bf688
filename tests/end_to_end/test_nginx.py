"""The product behind nginx as `deploy/` sets it up, and its web processes replaced one by one under load."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sqlite3
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests.end_to_end.proxy import HOST, Proxy, nginx
from tests.end_to_end.traffic import Plan, Seen, perform
from tests.installation import Installation, WebProcess
from tests.services import START_SECONDS, free_port, wait_until

MODEL = "MiniCPM5-2B"
CHAT = "/v1/chat/completions"
MIB = 1024 * 1024
CLIENTS = 12
# A request may wait in the queue of a process that is just starting.
PATIENCE_SECONDS = START_SECONDS + 30
BEHIND = {
    "SITE_URL": f"https://{HOST}",
    "ALLOWED_HOSTS": f"{HOST},127.0.0.1",
    # nginx connects from here; the clients of some tests come from other addresses.
    "TRUSTED_PROXIES": "127.0.0.1/32",
}


@pytest.fixture(scope="module")
def webs(demo_installation: Installation) -> list[WebProcess]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda _: demo_installation.start_web(environment=BEHIND), range(3)))


@pytest.fixture(scope="module")
def proxy(webs: list[WebProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with nginx(tmp_path_factory.mktemp("nginx"), web_ports=[web.port for web in webs]) as running:
        yield running


@pytest.fixture
def client(proxy: Proxy, demo_installation: Installation) -> Iterator[httpx.Client]:
    with proxy.client(secret=demo_installation.secret) as made:
        yield made


def chat(prompt: str, *, stream: bool = False) -> dict[str, object]:
    return {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "stream": stream}


def test_the_first_event_arrives_while_the_answer_is_still_being_written(
    client: httpx.Client, webs: list[WebProcess]
) -> None:
    with client.stream("POST", CHAT, json=chat("Hello [[tokens=200]] [[pace=0.2]]", stream=True)) as answer:
        first = next(answer.iter_lines())
        open_calls = sum(_in_flight(web) for web in webs)
    assert first.startswith("data: {")
    assert open_calls == 1


def _in_flight(web: WebProcess) -> float:
    text = httpx.get(f"{web.url}/metrics").text
    return sum(map(float, re.findall(r"^tokenfactory_upstream_in_flight\{.*\} (\S+)$", text, re.MULTILINE)))


def test_the_clients_address_is_the_one_that_nginx_saw(proxy: Proxy, demo_installation: Installation) -> None:
    secret = demo_installation.run_python(
        "import django; django.setup()\n"
        "from accounts.models import Team\nfrom accounts.keys import issue_key, KeyTerms\n"
        "terms = KeyTerms(networks=['127.0.0.5/32'])\n"
        "print(issue_key(team=Team.objects.first(), created_by=None, name='one address', terms=terms).secret)"
    ).strip()

    def status(address: str, **headers: str) -> int:
        with proxy.client(address=address, secret=secret) as client:
            return client.post(CHAT, json=chat("Hello [[tokens=3]]"), headers=headers).status_code

    assert status("127.0.0.5") == 200
    assert status("127.0.0.6") == 403
    # A client's own word of where it comes from is not believed.
    assert status("127.0.0.6", **{"X-Forwarded-For": "127.0.0.5"}) == 403
    assert status("127.0.0.5", **{"X-Forwarded-For": "127.0.0.6"}) == 200


def test_a_body_that_the_gateway_finds_too_large_is_refused_in_its_own_words(client: httpx.Client) -> None:
    answer = client.post(CHAT, content=b" " * (21 * MIB), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert "20 MiB" in answer.json()["error"]["message"]
    assert "x-request-id" in answer.headers


def test_a_body_that_nothing_takes_is_refused_before_it_is_sent(proxy: Proxy) -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {60 * MIB}\r\n\r\n"
    with (
        socket.create_connection(("127.0.0.1", proxy.port), timeout=30) as clear,
        proxy.tls.wrap_socket(clear, server_hostname=HOST) as connection,
    ):
        connection.sendall(head.encode())
        answer = httpx.Response(413, content=_read_to_the_end(connection).partition(b"\r\n\r\n")[2])
    assert answer.json()["error"]["code"] == "request_too_large"


def _read_to_the_end(connection: socket.socket) -> bytes:
    """Until the body's JSON is whole: nginx lingers before it hangs up."""
    data = b""
    while not data.endswith(b"}}") and (piece := connection.recv(65_536)):
        data += piece
    return data


def test_connections_to_the_web_processes_are_kept(client: httpx.Client, webs: list[WebProcess]) -> None:
    ports = {web.port for web in webs}
    client.get("/healthz")
    before = _connections_to(ports)
    for _ in range(20):
        assert client.get("/healthz").status_code == 200
    # One a process at most: not twenty.
    assert len(_connections_to(ports) - before) <= len(webs)


def _connections_to(ports: set[int]) -> set[tuple[int, int]]:
    """Connections to these ports of this machine, those that ended a moment ago included."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [(int(row[1].partition(":")[2], 16), int(row[2].partition(":")[2], 16)) for row in rows]
    return {(min(pair), max(pair)) for pair in ends if ports & {*pair} and all(pair)}


def test_pages_come_with_their_headers_and_cookies_for_https_alone(client: httpx.Client) -> None:
    answer = client.get("/accounts/login/")
    assert answer.status_code == 200
    headers = answer.headers
    assert headers["strict-transport-security"] == "max-age=31536000; includeSubDomains; preload"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    (cookie,) = [value for value in headers.get_list("set-cookie") if value.startswith("tf_csrf=")]
    assert {"Secure", "SameSite=Lax"} <= {part.strip() for part in cookie.split(";")}


def test_in_the_clear_pages_are_sent_on_and_keys_are_refused(proxy: Proxy) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{proxy.clear_port}", headers={"host": HOST}) as clear:
        page = clear.get("/usage/?period=30")
        assert (page.status_code, page.headers["location"]) == (301, f"https://{HOST}/usage/?period=30")
        for path in (CHAT, "/api/me", "/spaces/team/v1/models"):
            refused = clear.post(path, json={})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "https_required")


def test_metrics_are_not_for_the_world(client: httpx.Client) -> None:
    assert client.get("/metrics").status_code == 404


def test_while_no_web_process_runs_programs_are_told_in_json(tmp_path: Path) -> None:
    with nginx(tmp_path, web_ports=[free_port(), free_port()]) as alone, alone.client() as client:
        answer = client.post(CHAT, json=chat("Hello"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.json()["error"]["code"] == "gateway_unavailable"


# -- replacing the processes ---------------------------------------------------------------------


def test_a_call_whose_process_goes_away_before_it_answers_is_answered_by_another(
    webs: list[WebProcess], demo_installation: Installation, tmp_path: Path
) -> None:
    with (
        _leaving_process() as (leaving_port, requests),
        nginx(tmp_path, web_ports=[leaving_port, webs[0].port]) as running,
        running.client(secret=demo_installation.secret) as client,
    ):
        statuses = {client.post(CHAT, json=chat("Hello [[tokens=3]]")).status_code for _ in range(4)}
        calls = len(requests)
        forms = Counter(client.post("/accounts/login/").status_code for _ in range(4))
    assert statuses == {200}
    assert calls > 0
    # A form may have done its work before its process went: nobody sends it twice.
    assert forms[502] == len(requests) - calls > 0


@contextmanager
def _leaving_process() -> Iterator[tuple[int, list[bytes]]]:
    """A port where requests are taken and never answered; and the requests so far."""
    requests: list[bytes] = []

    def take() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                requests.append(connection.recv(65_536))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=take)
        thread.start()
        yield listening.getsockname()[1], requests
        # Closing alone does not wake up who accepts.
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_no_request_is_lost_while_the_web_processes_are_replaced_one_by_one(
    demo_installation: Installation, webs: list[WebProcess], proxy: Proxy
) -> None:
    async def traffic() -> tuple[list[Seen], Counter[int]]:
        done = asyncio.Event()
        running = [asyncio.create_task(_ask_until(done, proxy, demo_installation.secret, n)) for n in range(CLIENTS)]
        pages = asyncio.create_task(_open_pages_until(done, proxy))
        try:
            await asyncio.to_thread(_replace_all, demo_installation, webs)
        finally:
            done.set()
        return [one for seen in await asyncio.gather(*running) for one in seen], await pages

    seen, pages = asyncio.run(traffic())
    assert [one for one in seen if not one.ended] == []
    assert len(seen) > 3 * CLIENTS
    assert pages.keys() == {200}
    wait_until(lambda: len(_outcomes(demo_installation, seen)) == len(seen), what="a record of each request")
    assert set(_outcomes(demo_installation, seen)) == {"ok"}


def _replace_all(installed: Installation, webs: list[WebProcess]) -> None:
    """What `docs/operations.md` says: SIGTERM, wait for the end, start again, wait until it answers, the next."""
    for web in list(webs):
        web.process.send_signal(signal.SIGTERM)
        web.process.wait(60)
        webs.remove(web)
        webs.append(installed.start_web(environment=BEHIND, port=web.port))


async def _ask_until(done: asyncio.Event, proxy: Proxy, secret: str, number: int) -> list[Seen]:
    """Whole answers and short streams in turn, one after another on one connection."""
    headers = {"authorization": f"Bearer {secret}", "host": HOST}
    seen = []
    async with httpx.AsyncClient(
        base_url=proxy.url, verify=proxy.tls, headers=headers, timeout=PATIENCE_SECONDS
    ) as client:
        for turn in count(number):
            prompt = f"Request {turn} [[tokens=6]] [[pace=0.05]]"
            seen.append(await perform(client, Plan(MODEL, prompt, stream=turn % 2 == 0)))
            if done.is_set():
                return seen
    raise AssertionError("count() ended")


async def _open_pages_until(done: asyncio.Event, proxy: Proxy) -> Counter[int]:
    statuses: Counter[int] = Counter()
    async with httpx.AsyncClient(
        base_url=proxy.url, verify=proxy.tls, headers={"host": HOST}, timeout=PATIENCE_SECONDS
    ) as client:
        while not done.is_set():
            statuses[(await client.get("/accounts/login/")).status_code] += 1
    return statuses


def _outcomes(installed: Installation, seen: list[Seen]) -> list[str]:
    ids = json.dumps([one.request_id for one in seen])
    statement = "select outcome from billing_usagerecord where id in (select value from json_each(?))"
    with closing(sqlite3.connect(installed.folder / "var" / "token-factory.sqlite3")) as database:
        return [row[0] for row in database.execute(statement, [ids])]
