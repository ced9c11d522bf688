"""/staff/upstreams/: the model servers as one web process sees them, for staff alone and without a secret."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from django.test import Client

from accounts.models import Membership, Role, Team, User
from gateway.catalog import load
from gateway.runtime import Runtime, set_runtime
from gateway.transport import Transport
from gateway.upstream_state import Status, UpstreamState, process_state
from gateway.upstreams import Kind, Upstream, Upstreams
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import DEAD, GatewayProcess
from tests.secrecy import is_secret

ADDRESS = "/staff/upstreams/"
FLASH, QWEN = "DeepSeek-V4-Flash", "Qwen3.8-27B"
PASSWORD = is_secret("harbour-of-servers")


@pytest.fixture
def server() -> Iterator[Upstream]:
    """The only server of a runtime that has nothing else."""
    address = f"http://admin:{PASSWORD}@10.0.0.5:8000/v1?key={PASSWORD}"
    names = {FLASH: FLASH, QWEN: "qwen-inside"}
    upstream = Upstream("pool-a", address, Kind.VLLM, PASSWORD, names, discovers=False, max_concurrency=2)
    upstreams = Upstreams([upstream], catalog=load(), transport=Transport())
    set_runtime(cast(Runtime, SimpleNamespace(upstreams=upstreams)))
    yield upstream
    set_runtime(None)


@pytest.fixture
def staff(db: None) -> Client:
    return browser_of(User.objects.create_user("staff@example.com", is_staff=True))


def browser_of(person: User) -> Client:
    Membership.objects.create(team=Team.objects.create(name="Any"), user=person, role=Role.OWNER)
    client = Client()
    client.force_login(person)
    return client


def only() -> UpstreamState:
    process = process_state()
    assert process is not None
    (state,) = process.upstreams
    return state


def test_a_server_is_told_without_its_secrets(server: Upstream) -> None:
    state = only()
    assert (state.name, state.kind, state.address) == ("pool-a", "vllm", "http://10.0.0.5:8000/v1")
    assert state.models == ((FLASH, ""), (QWEN, "qwen-inside"))
    assert (state.status, state.in_flight, state.max_concurrency) == (Status.READY, 0, 2)
    assert PASSWORD not in repr(process_state())


def test_a_server_is_full_at_its_limit(server: Upstream) -> None:
    server.take()
    assert (only().status, only().in_flight) == (Status.READY, 1)
    server.take()
    assert (only().status, only().in_flight) == (Status.FULL, 2)


def test_a_server_rests_is_tried_and_is_ready_again(server: Upstream) -> None:
    server.failures, server.rests_until = 3, time.monotonic() + 29.6
    assert (only().status, only().failures, only().rests_seconds) == (Status.RESTING, 3, 30)
    server.rests_until = time.monotonic() - 1
    assert (only().status, only().rests_seconds) == (Status.ON_TRIAL, 0)
    server.succeeded()
    assert (only().status, only().failures) == (Status.READY, 0)


def test_a_server_nobody_has_found_serves_nothing(server: Upstream) -> None:
    server.served_as = {}
    process = process_state()
    assert process is not None
    assert (only().status, process.failing) == (Status.SERVES_NOTHING, 1)


def test_the_page_names_the_process_it_speaks_for(server: Upstream, staff: Client, settings: Any) -> None:
    settings.REDIS_URL = ""
    page = staff.get(ADDRESS).content.decode()
    process = process_state()
    assert process is not None
    assert f"As seen by web process {process.pid} on {process.host}" in page
    assert "another may answer next time" not in page
    assert PASSWORD not in page
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert "another may answer next time" in staff.get(ADDRESS).content.decode()


def test_a_swap_brings_the_states_alone(server: Upstream, staff: Client) -> None:
    part = staff.get(ADDRESS, headers={"HX-Request": "true"}).content.decode()
    assert part.strip().startswith('<div id="upstream-states"')
    assert "<html" not in part


def test_without_a_gateway_or_servers_the_page_says_so(staff: Client) -> None:
    assert "No gateway runs in this process" in staff.get(ADDRESS).content.decode()
    set_runtime(cast(Runtime, SimpleNamespace(upstreams=SimpleNamespace(all=[]))))
    try:
        assert "No model server is configured" in staff.get(ADDRESS).content.decode()
    finally:
        set_runtime(None)


def test_for_others_the_page_does_not_exist(server: Upstream, db: None) -> None:
    assert browser_of(User.objects.create_user("owner@example.com")).get(ADDRESS).status_code == 404
    assert Client().get(ADDRESS)["Location"] == f"/accounts/login/?next={ADDRESS}"


def test_what_became_of_a_call_is_seen_on_the_page(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    assert gateway.ask(model=DEAD).status_code == 502
    with httpx.Client(base_url=gateway.url, timeout=30) as browser:
        browser.get("/accounts/login/")
        form = {"login": gateway.installation.email, "password": gateway.installation.password}
        token = {"csrfmiddlewaretoken": browser.cookies["tf_csrf"]}
        assert browser.post("/accounts/login/", data=form | token, headers={"Origin": gateway.url}).status_code == 302
        page = browser.get(ADDRESS).text
    rows = {re.findall(r">([^<>]+)<span", row)[0]: row for row in page.split("<tr>")[2:]}
    assert list(rows) == ["plain", "engine", "dead", "replica 1", "replica 2", "found"]
    assert re.search("Resting|On trial", rows["dead"])
    assert ("Ready" in rows["plain"], "mystery-model" in rows["found"]) == (True, True)
