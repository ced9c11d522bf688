"""The log is the backend's own account: a line a request, with what was really sent."""

import json
import socket
from uuid import uuid4

import httpx
import pytest

from tests.gateway.demo.client import Demo, user


def test_a_completed_call(demo: Demo) -> None:
    usage = demo.usage(model="Qwen3.8-27B", temperature=0.5, seed=3)
    line = demo.logged()
    assert (line["model"], line["status"], line["finished"], line["stream"]) == ("Qwen3.8-27B", 200, True, False)
    assert line["prompt_tokens"] == usage["prompt_tokens"]
    assert line["completion_tokens"] == usage["completion_tokens"]
    assert line["parameters"] == ["messages", "model", "seed", "temperature"]


def test_a_whole_stream(demo: Demo) -> None:
    demo.stream(messages=[user("Hi [[tokens=33]]")])
    line = demo.logged()
    assert (line["stream"], line["finished"], line["completion_tokens"]) == (True, True, 33)


def test_cached_and_thinking_tokens(demo: Demo) -> None:
    text = " ".join(f"logged{i}" for i in range(40)) + " [[thinking=11]]"
    # 40 words, 9 tokens of the hook, the role and the opening: 51.
    for _ in range(2):
        demo.usage(model="MiMo-V2.6-Flash", messages=[user(text)])
    line = demo.logged()
    assert (line["cached_tokens"], line["reasoning_tokens"]) == (48, 11)


def test_a_refused_call_worked_nothing(demo: Demo) -> None:
    demo.refused(model="Qwen3.8-27B", reasoning_effort="high")
    line = demo.logged()
    assert (line["status"], line["prompt_tokens"], line["completion_tokens"]) == (400, 0, 0)


def test_a_stream_its_client_left_counts_what_was_sent(demo: Demo) -> None:
    request_id = str(uuid4())
    body = {"model": "DeepSeek-V4-Flash", "stream": True, "messages": [user("Hi [[tokens=900]] [[pace=0.5]]")]}
    received = 0
    with demo.http.stream("POST", "/v1/chat/completions", json=body, headers={"x-request-id": request_id}) as answer:
        for line in answer.iter_lines():
            received += line.startswith("data: ")
            if received == 4:  # the opening and three tokens
                break
    record = demo.logged(request_id)
    assert (record["status"], record["finished"], record["completion_tokens"]) == (200, False, 3)


def test_a_slow_call_its_client_left_is_cut_too(demo: Demo) -> None:
    request_id = str(uuid4())
    body = {"model": "DeepSeek-V4-Flash", "messages": [user("Hi [[tokens=900]] [[pace=30]]")]}
    headers = {"x-request-id": request_id}
    with pytest.raises(httpx.ReadTimeout):
        demo.http.post("/v1/chat/completions", json=body, headers=headers, timeout=0.3)
    line = demo.logged(request_id)
    assert (line["finished"], line["completion_tokens"]) == (False, 0)


def test_everything_counted_reaches_a_client_that_only_ends_its_own_side(demo: Demo) -> None:
    request_id = str(uuid4())
    body = json.dumps({"model": "DeepSeek-V4-Flash", "stream": True, "messages": [user("Hi [[tokens=90000]]")]})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: demo\r\nx-request-id: {request_id}\r\n"
    with socket.create_connection((demo.http.base_url.host, demo.http.base_url.port or 80), timeout=30) as client:
        client.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        received = client.recv(1)
        client.shutdown(socket.SHUT_WR)
        while part := client.recv(65_536):
            received += part
    line = demo.logged(request_id)
    assert line["finished"] is False
    assert line["completion_tokens"] == received.count(b"data: ") - 1  # the opening carries no token
