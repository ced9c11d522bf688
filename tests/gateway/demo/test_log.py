"""The log is the backend's own account: a line a request, with what was really sent."""

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
