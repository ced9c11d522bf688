"""Every route that uses a model passes the one admission: spent points and narrow scopes bar all of them alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.app import ROUTES
from tests.documents import data_url, png
from tests.fake_upstream.replies import MODEL
from tests.forked import ROOT
from tests.gateway.gateway_process import USER, GatewayProcess
from tests.installation import Installation

IMAGE = {"type": "image_url", "image_url": data_url(png(1, 1), "image/png")}
BILLABLE: dict[str, dict[str, Any]] = {
    "chat/completions": {"model": MODEL, "messages": [USER]},
    "messages": {"model": MODEL, "messages": [USER], "max_tokens": 5},
    "ocr": {"model": "MinerU2.5-Pro", "document": IMAGE},
    "audio/speech": {"model": "OmniVoice", "input": "Hello"},
    "systemone": {"model": "d3", "state": "x", "questions": {"q": {"type": "noul", "instructions": "?"}}},
}
FREE = {"messages/count_tokens": {"model": MODEL, "messages": [USER]}}


@pytest.fixture(scope="module")
def poor(gateway_installation: Installation) -> Iterator[GatewayProcess]:
    """Less than the cheapest call costs is left."""
    web = gateway_installation.start_web(environment={"TEAM_POINTS_LIMIT": "0.000000001"})
    with GatewayProcess(gateway_installation, web) as process:
        yield process


@pytest.fixture(scope="module")
def slow(gateway_installation: Installation) -> Iterator[GatewayProcess]:
    """One request a minute, of whatever kind."""
    web = gateway_installation.start_web(environment={"RATE_LIMIT_KEY_RPM": "1"})
    with GatewayProcess(gateway_installation, web) as process:
        yield process


def test_every_route_that_is_posted_to_is_listed_here() -> None:
    posted = {path for path, methods in ROUTES.items() if "POST" in methods}
    assert posted == {*BILLABLE, *FREE}


def test_one_function_alone_reaches_model_servers() -> None:
    """Whatever the endpoint or the page: who passes the relay has passed the admission in the line before."""
    found = set()
    for folder in ("gateway", "playground"):
        for path in (ROOT / folder).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    calls = [ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
                    if any(call.endswith(("relay.accept", "relay.open")) for call in calls):
                        found.add((f"{folder}/{path.name}", function.name, "self.admission.admit" in calls))
    assert found == {("gateway/runtime.py", "begin", True)}


@pytest.mark.parametrize("path", BILLABLE)
def test_without_points_nothing_that_costs_any_gets_through(poor: GatewayProcess, path: str) -> None:
    response = poor.http.post(f"/v1/{path}", json=BILLABLE[path])
    assert response.status_code == 429
    assert int(response.headers["retry-after"]) > 0
    error = response.json()["error"]
    assert (error["type"], "Not enough points" in error["message"]) == ("rate_limit_error", True)
    assert error.get("code", "insufficient_quota") == "insufficient_quota"


@pytest.mark.parametrize("path", FREE)
def test_what_costs_nothing_needs_no_points(poor: GatewayProcess, path: str) -> None:
    assert poor.http.post(f"/v1/{path}", json=FREE[path]).status_code == 200


def test_all_of_them_count_as_requests(slow: GatewayProcess) -> None:
    assert slow.http.post("/v1/messages/count_tokens", json=FREE["messages/count_tokens"]).status_code == 200
    for path, body in (BILLABLE | FREE).items():
        response = slow.http.post(f"/v1/{path}", json=body)
        assert response.status_code == 429, path
        assert "Too many requests" in response.json()["error"]["message"]
