"""`/spaces/{endpoint}/v1/…` over real sockets: what a team's own server receives and what its client gets back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.gateway.mirror import Line, Mirror, Seen, mirror, says
from tests.installation import Installation, WebProcess, installation
from tests.secrecy import PROMPT_MARK, is_secret
from tests.services import dead_port, wait_until

SET_UP = """
import json, sys, django
django.setup()
from accounts.audit import SYSTEM
from accounts.keys import KeyTerms, issue_key
from accounts.models import Team, User
from gateway.endpoints import register_endpoint
team = Team.objects.first()
owner = User.objects.first()
for slug, url, key in {endpoints!r}:
    register_endpoint(
        team=team, created_by=owner, slug=slug, name=slug, base_url=url, kind="vllm", api_key=key, actor=SYSTEM
    )
other = Team.objects.create(name="Other", time_zone="UTC")
print(json.dumps([
    issue_key(team=other, created_by=None, name="other").secret,
    issue_key(team=team, created_by=owner, name="chat only", terms=KeyTerms(endpoints=["chat"])).secret,
]))
"""
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
API_KEY = is_secret("sk-of-the-own-server")
ANSWER = b'{"id":"x","model":"own-model","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4}}'


@dataclass(frozen=True)
class Site:
    installed: Installation
    web: WebProcess
    mirror: Mirror
    foreign_secret: str
    chat_only_secret: str

    @property
    def url(self) -> str:
        return f"{self.web.url}/spaces/own/v1"

    @property
    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.web.url, headers={"authorization": f"Bearer {self.installed.secret}"}, timeout=60
        )

    def records(self, request_id: str) -> list[list[Any]]:
        # Read at once: a process of Django's own for every look would be most of the tests' time.
        database = self.installed.folder / "var/token-factory.sqlite3"
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            rows = connection.execute(
                "select source, endpoint, model, status, outcome, prompt_tokens, completion_tokens, estimated"
                " from billing_usagerecord where id = ?",
                [request_id.replace("-", "")],
            )
            return [list(row) for row in rows]

    def record(self, request_id: str) -> list[Any]:
        wait_until(lambda: self.records(request_id), what="the usage record")
        return self.records(request_id)[0]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        mirror() as own,
        installation(tmp_path_factory.mktemp("spaces"), DEDICATED_ALLOW="127.0.0.0/8", RATE_LIMIT_KEY_RPM="1") as made,
    ):
        own_url = own.url
        endpoints = [
            ("own", own_url, API_KEY), ("keyless", own_url, ""), ("away", f"http://127.0.0.1:{dead_port()}/v1", ""),
            ("metadata", "http://169.254.169.254/v1", ""),
        ]  # fmt: skip
        foreign, chat_only = json.loads(made.run_python(SET_UP.format(endpoints=endpoints)))
        yield Site(made, made.start_web(), own, foreign, chat_only)


@pytest.fixture(autouse=True)
def nothing_left_over(site: Site) -> None:
    site.mirror.seen.clear()
    site.mirror.scripts.clear()


# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_method_path_query_and_body_arrive_byte_for_byte(site: Site, method: str) -> None:
    body = bytes(range(256)) * 3
    site.mirror.scripts.append(says(OK))
    with site.client as client:
        answer = client.request(method, "/spaces/own/v1/a%2Fb/%E4%BD%A0//c;d?x=1&x=%20+&y", content=body)
    (seen,) = site.mirror.seen
    assert seen.line == f"{method} /base/v1/a%2Fb/%E4%BD%A0//c;d?x=1&x=%20+&y HTTP/1.1".encode()
    assert seen.body == body
    assert (answer.status_code, answer.content) == (200, b"{}")


def test_only_the_hop_and_the_credential_change_in_the_headers(site: Site) -> None:
    site.mirror.scripts.append(says(OK))
    sent = {
        "accept": "text/x-odd", "content-type": "application/x-odd", "x-custom": "1, 2",
        "user-agent": "odd/1", "accept-encoding": "br", "connection": "keep-alive, x-hop", "x-hop": "1",
        "te": "trailers", "cookie": "other=1; tf_session=secret; tf_csrf=c",
    }  # fmt: skip
    with site.client as client:
        client.post("/spaces/own/v1/x", content=b"b", headers=sent)
    headers = dict(site.mirror.seen[0].headers)
    via = headers.pop(b"via")
    assert via.startswith(b"1.1 tf-")
    assert headers == {
        b"host": f"127.0.0.1:{site.mirror.port}".encode(), b"accept": b"text/x-odd",
        b"content-type": b"application/x-odd", b"x-custom": b"1, 2", b"user-agent": b"odd/1",
        b"accept-encoding": b"br", b"cookie": b"other=1", b"content-length": b"1",
        b"authorization": f"Bearer {API_KEY}".encode(),
    }  # fmt: skip


def test_an_endpoint_without_a_key_is_sent_none(site: Site) -> None:
    site.mirror.scripts.append(says(OK))
    with site.client as client:
        client.get("/spaces/keyless/v1/models")
    assert site.mirror.seen[0].header(b"authorization") is None


def test_the_answers_status_headers_and_body_come_back_as_they_are(site: Site) -> None:
    body = bytes(range(256))
    site.mirror.scripts.append(
        says(
            b"HTTP/1.1 418 Odd\r\ncontent-type: image/x-odd\r\nx-odd: 1\r\nx-odd: 2\r\nset-cookie: tf_session=evil\r\n"
            b"access-control-allow-origin: *\r\nx-request-id: theirs\r\ncontent-length: 256\r\n\r\n" + body
        )
    )
    with site.client as client:
        answer = client.get("/spaces/own/v1/picture")
    assert answer.status_code == 418
    assert answer.content == body
    assert answer.headers.get_list("x-odd") == ["1", "2"]
    assert answer.headers["content-type"] == "image/x-odd"
    assert answer.headers["x-request-id"] != "theirs"
    assert answer.headers["content-security-policy"] == "sandbox; default-src 'none'"
    for withheld in ("set-cookie", "access-control-allow-origin"):
        assert withheld not in answer.headers


def test_head_is_answered_without_waiting_for_a_body(site: Site) -> None:
    site.mirror.scripts += [says(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n"), says(OK)]
    with site.client as client:
        answer = client.head("/spaces/own/v1/file")
        assert (answer.status_code, answer.headers["content-length"], answer.content) == (200, "999", b"")
        assert client.get("/spaces/own/v1/file").content == b"{}"


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body_end_at_once(site: Site, status: int) -> None:
    site.mirror.scripts.append(says(f"HTTP/1.1 {status} X\r\n\r\n".encode()))
    with site.client as client:
        answer = client.get("/spaces/own/v1/x")
    assert (answer.status_code, answer.content) == (status, b"")


# -- streams ---------------------------------------------------------------------------------------


def test_a_large_body_without_a_length_passes_in_both_directions(site: Site) -> None:
    """48 MiB up, the same down again while it is still coming: more than anything on the way may hold."""

    async def echo(line: Line, seen: Seen) -> None:
        await line.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        async for piece in line.pieces(seen):
            await line.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        await line.send(b"0\r\n\r\n")

    site.mirror.scripts.append(echo)
    resident = _resident_bytes(site.web.process.pid)
    sent, received = asyncio.run(_full_duplex(site, piece=bytes(range(256)) * 1024, count=192))
    assert sent == received
    assert _resident_bytes(site.web.process.pid) - resident < 16 * 1024 * 1024


async def _full_duplex(site: Site, *, piece: bytes, count: int) -> tuple[bytes, bytes]:
    """A client that reads while it sends: the digests of both directions."""
    sent, received = hashlib.sha256(), hashlib.sha256()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.web.port)
    head = (
        f"POST /spaces/own/v1/echo HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {site.installed.secret}\r\n"
        "transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    )

    async def send() -> None:
        writer.write(head.encode())
        for _ in range(count):
            sent.update(piece)
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    sending = asyncio.ensure_future(send())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    while length := int(await reader.readline(), 16):
        data = (await reader.readexactly(length + 2))[:-2]
        received.update(data)
    await sending
    writer.close()
    return sent.digest(), received.digest()


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_large_body_of_known_length_keeps_its_length(site: Site) -> None:
    body = b"0123456789abcdef" * 65_536
    site.mirror.scripts.append(says(OK))
    with site.client as client:
        assert client.put("/spaces/own/v1/file", content=body).content == b"{}"
    (seen,) = site.mirror.seen
    assert seen.body == body
    assert seen.header(b"content-length") == b"1048576"
    assert seen.header(b"transfer-encoding") is None


def test_events_come_one_by_one_and_their_usage_is_recorded(site: Site) -> None:
    gate = site.mirror.event()

    async def events(line: Line, seen: Seen) -> None:
        await line.read_body(seen)
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for data in (b'data: {"model":"m1","choices":[{"delta":{"content":"a"}}]}\r\n\r\n', b": odd comment\n\n"):
            await line.send(b"%x\r\n%s\r\n" % (len(data), data))
        await gate.wait()
        rest = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\ndata: [DONE]\n\n'
        await line.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))

    site.mirror.scripts.append(events)
    with (
        site.client as client,
        client.stream("POST", "/spaces/own/v1/chat/completions", json={"model": "m0"}) as answer,
    ):
        pieces = answer.iter_raw()
        first = next(pieces)
        assert first.startswith(b'data: {"model":"m1"')
        site.mirror.set(gate)
        text = first + b"".join(pieces)
    assert text.endswith(
        b": odd comment\n\n"
        + b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\ndata: [DONE]\n\n'
    )
    assert site.record(answer.headers["x-request-id"]) == [
        "dedicated", "spaces/own", "m1", 200, "ok", 7, 3, 0,
    ]  # fmt: skip


def test_a_client_that_leaves_ends_the_call_at_the_teams_server(site: Site) -> None:
    async def endless(line: Line, seen: Seen) -> None:
        await line.read_body(seen)
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        data = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
        await line.send(b"%x\r\n%s\r\n" % (len(data), data))
        await line.until_hangup()
        raise ConnectionResetError

    site.mirror.scripts.append(endless)
    with site.client as client, client.stream("POST", "/spaces/own/v1/chat/completions", json={"model": "m"}) as answer:
        next(answer.iter_raw())
        request_id = answer.headers["x-request-id"]
    assert site.mirror.hangups.acquire(timeout=10)
    assert site.record(request_id) == ["dedicated", "spaces/own", "m", 200, "client_gone", 7, 1, 0]


def test_a_client_that_leaves_in_the_middle_of_its_body_ends_the_call_too(site: Site) -> None:
    async def read(line: Line, seen: Seen) -> None:
        await line.read_body(seen)

    site.mirror.scripts.append(read)
    with socket.create_connection(("127.0.0.1", site.web.port)) as client:
        client.sendall(
            f"POST /spaces/own/v1/x HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {site.installed.secret}\r\n"
            "content-length: 1000000\r\n\r\nabc".encode()
        )
        wait_until(lambda: site.mirror.seen, what="the head at the team's server")
    assert site.mirror.hangups.acquire(timeout=10)
    assert site.mirror.seen[0].cut


def test_many_streams_that_are_left_leave_no_connection_behind(site: Site) -> None:
    async def endless(line: Line, seen: Seen) -> None:
        await line.read_body(seen)
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n")
        await line.until_hangup()
        raise ConnectionResetError

    site.mirror.scripts += [endless] * 60 + [says(OK)]
    before = _open_files(site)
    head = f"POST /spaces/own/v1/x HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {site.installed.secret}\r\n"
    clients = [socket.create_connection(("127.0.0.1", site.web.port)) for _ in range(60)]
    for number, client in enumerate(clients):
        client.sendall(f"{head}content-length: 2\r\n\r\n{{}}".encode())
        if number % 2:
            # Every other one has seen the answer begin.
            client.recv(65536)
    wait_until(lambda: len(site.mirror.seen) == 60, what="60 requests at the team's server")
    for client in clients:
        client.close()
    for _ in clients:
        assert site.mirror.hangups.acquire(timeout=10)
    with site.client as left:
        assert left.get("/spaces/own/v1/x").content == b"{}"
    wait_until(lambda: _open_files(site) <= before + 2, what="all connections closed")


def _open_files(site: Site) -> int:
    return len(list(Path(f"/proc/{site.web.process.pid}/fd").iterdir()))


def test_an_answer_that_breaks_off_breaks_off_for_the_client(site: Site) -> None:
    site.mirror.scripts.append(
        says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", then_close=True)
    )
    with site.client as client, client.stream("GET", "/spaces/own/v1/x") as answer:
        request_id = answer.headers["x-request-id"]
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
    assert site.record(request_id)[3:5] == [200, "error"]


# -- records ---------------------------------------------------------------------------------------


def test_usage_of_a_whole_answer_is_recorded_at_no_points(site: Site) -> None:
    site.mirror.scripts.append(
        says(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER) + ANSWER)
    )
    with site.client as client:
        answer = client.post("/spaces/own/v1/chat/completions", json={"model": "asked"})
    assert answer.content == ANSWER
    assert site.record(answer.headers["x-request-id"]) == [
        "dedicated", "spaces/own", "own-model", 200, "ok", 9, 4, 0,
    ]  # fmt: skip


def test_the_official_client_works(site: Site) -> None:
    document = {
        "id": "c1", "object": "chat.completion", "created": 1, "model": "mine",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }  # fmt: skip
    body = json.dumps(document).encode()
    site.mirror.scripts.append(
        says(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    )
    with openai.OpenAI(base_url=site.url, api_key=site.installed.secret, max_retries=0) as client:
        asked: Any = [{"role": "user", "content": PROMPT_MARK}]
        answer = client.chat.completions.create(model="mine", messages=asked, seed=5)
    assert answer.choices[0].message.content == "Hi"
    assert json.loads(site.mirror.seen[0].body)["seed"] == 5


# -- refusals --------------------------------------------------------------------------------------


def refused(site: Site, path: str, secret: str | None = None) -> tuple[int, str]:
    headers = {"authorization": f"Bearer {secret or site.installed.secret}"}
    answer = httpx.get(f"{site.web.url}{path}", headers=headers)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    return answer.status_code, answer.json()["error"]["code"]


def test_a_key_of_another_team_is_refused(site: Site) -> None:
    assert refused(site, "/spaces/own/v1/models", site.foreign_secret) == (403, "permission_denied")


def test_a_key_limited_to_other_endpoints_is_refused(site: Site) -> None:
    assert refused(site, "/spaces/own/v1/models", site.chat_only_secret) == (403, "permission_denied")


@pytest.mark.parametrize(
    "path",
    ["/spaces/nobody/v1/models", "/spaces/own/v2/models", "/spaces/own", "/spaces/own/v1x/models", "/spaces//v1/x"],
)
def test_what_does_not_exist_is_not_found(site: Site, path: str) -> None:
    assert refused(site, path) == (404, "not_found")


@pytest.mark.parametrize("path", ["/spaces/own/v1/../../x", "/spaces/own/v1/%2e%2e/x", "/spaces/own/v1/a/..%2fx"])
def test_steps_upward_lead_nowhere(site: Site, path: str) -> None:
    with socket.create_connection(("127.0.0.1", site.web.port)) as client:
        client.sendall(
            f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            f"authorization: Bearer {site.installed.secret}\r\n\r\n".encode()
        )
        assert client.makefile("rb").readline() == b"HTTP/1.1 404 Not Found\r\n"
    assert site.mirror.seen == []


def test_without_a_credential_nothing_passes(site: Site) -> None:
    assert httpx.get(f"{site.url}/models").status_code == 401


def test_a_server_that_is_away_is_a_503_with_retry_after(site: Site) -> None:
    with site.client as client:
        answer = client.get("/spaces/away/v1/models")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "upstream_unavailable")
    assert answer.headers["retry-after"] == "5"
    assert site.record(answer.headers["x-request-id"])[3:5] == [503, "error"]


def test_an_address_that_no_endpoint_may_have_is_refused_when_connecting(site: Site) -> None:
    assert refused(site, "/spaces/metadata/v1/models") == (503, "upstream_unavailable")


def test_a_request_that_comes_round_again_is_refused(site: Site) -> None:
    site.mirror.scripts.append(says(OK))
    with site.client as client:
        client.get("/spaces/own/v1/x")
        via = site.mirror.seen[0].header(b"via") or b""
        answer = client.get("/spaces/own/v1/x", headers={"via": via.decode()})
    assert (answer.status_code, answer.json()["error"]["code"]) == (508, "loop_detected")
