"""`/metrics` and the request log: every call is counted and told in one line, and nothing secret is in either."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.fake_upstream import replies
from tests.fake_upstream.replies import MODEL, chunk, completion, event
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.gateway_process import DEAD, GatewayProcess
from tests.services import wait_until

USAGE = {"prompt_tokens": 1_000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 400}}


class Metrics:
    """Samples by name and labels."""

    def __init__(self, gateway: GatewayProcess) -> None:
        answer = httpx.get(f"{gateway.url}/metrics", timeout=30)
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((f"tokenfactory_{name}", frozenset(labels.items())), 0)


def grown(gateway: GatewayProcess, before: Metrics, name: str, **labels: str) -> float:
    return Metrics(gateway)(name, **labels) - before(name, **labels)


def test_a_call_is_counted_with_its_tokens_and_points(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    before = Metrics(gateway)
    upstream.then(replies.answer(completion(usage=USAGE)))
    assert gateway.ask().status_code == 200
    assert grown(gateway, before, "calls_total", endpoint="chat", model=MODEL, status="200") == 1
    tokens = {meter: grown(gateway, before, "tokens_total", model=MODEL, meter=meter)
              for meter in ("input", "cache_read", "output")}  # fmt: skip
    assert tokens == {"input": 600, "cache_read": 400, "output": 200}
    assert grown(gateway, before, "points_total", model=MODEL) == pytest.approx(0.00014112)
    assert grown(gateway, before, "call_seconds_count") == 1
    assert grown(gateway, before, "first_byte_seconds_count") == 1


def test_the_gaps_of_a_stream_are_counted_as_their_mean(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    before = Metrics(gateway)
    events = [event(chunk("word ")) for _ in range(4)]
    upstream.then(replies.stream(*events, event(chunk(finish_reason="stop"))))
    with gateway.streamed() as response:
        response.read()
    wait_until(lambda: grown(gateway, before, "chunk_gap_seconds_count"), what="the stream counted")
    assert grown(gateway, before, "chunk_gap_seconds_count") == 4
    assert 0 <= grown(gateway, before, "chunk_gap_seconds_sum") < 30
    upstream.then(replies.answer(completion(usage=USAGE)))
    gateway.ask()
    assert grown(gateway, before, "chunk_gap_seconds_count") == 4


def test_failures_and_refusals_are_counted_by_what_they_were(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    before = Metrics(gateway)
    assert gateway.ask(model=DEAD).status_code == 502
    assert grown(gateway, before, "calls_total", endpoint="chat", model=DEAD, status="502") == 1
    assert Metrics(gateway)("upstream_ready", upstream="plain") == 1


def test_a_server_is_seen_working_and_resting(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, [event(chunk("a"))], [event(chunk(finish_reason="stop")), replies.DONE]))
    with gateway.streamed() as response:
        wait_until(gate.reached.is_set, what="the stream")
        assert Metrics(gateway)("upstream_in_flight", upstream="plain") == 1
        gate.open()
        response.read()
    assert Metrics(gateway)("upstream_in_flight", upstream="plain") == 0
    # Several failures in a row, so that it rests long enough to be seen.
    for _ in range(4):
        gateway.ask(model=DEAD)
    assert Metrics(gateway)("upstream_ready", upstream="dead") == 0


def test_metrics_are_for_certain_networks(gateway: GatewayProcess) -> None:
    web = gateway.installation.start_web(environment={"METRICS_NETWORKS": "10.0.0.0/8"})
    answer = httpx.get(f"{web.url}/metrics", timeout=30)
    assert (answer.status_code, "tokenfactory" in answer.text) == (403, False)
    web.process.terminate()
    web.process.wait(20)


def test_each_request_is_one_line_of_json_without_its_secrets(gateway: GatewayProcess, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(completion("an answer to keep")))
    answered = gateway.ask(messages=[{"role": "user", "content": "a prompt to keep"}])
    refused = gateway.ask(model="gpt-7")
    stranger = httpx.get(
        f"{gateway.url}/v1/models?q=a-query", headers={"authorization": "Bearer rc-guessed"}, timeout=30
    )
    lines = [_line(gateway, response) for response in (answered, refused, stranger)]
    told = [(line["method"], line["path"], line["status"], line["model"]) for line in lines]
    assert told == [
        ("POST", "/v1/chat/completions", 200, MODEL),
        ("POST", "/v1/chat/completions", 400, ""),
        ("GET", "/v1/models", 401, ""),
    ]
    assert [bool(line["team"]) and bool(line["key"]) for line in lines] == [True, True, False]
    assert all(set(line) == set(lines[0]) and line["ms"] >= 0 and line["at"] for line in lines)
    log = _log(gateway)
    for secret in ("a prompt to keep", "an answer to keep", "a-query", "rc-guessed", gateway.secret[8:-4]):
        assert secret not in log


def _log(gateway: GatewayProcess) -> str:
    return (gateway.installation.folder / "web.log").read_text()


def _line(gateway: GatewayProcess, response: httpx.Response) -> Any:
    request_id = f'"{response.headers["x-request-id"]}"'
    wait_until(lambda: request_id in _log(gateway), what="the request's line")
    (line,) = [line for line in _log(gateway).splitlines() if request_id in line]
    return json.loads(line)
