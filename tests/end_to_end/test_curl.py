"""curl, as people type it: whole, streamed, with tools, JSON mode and images, uploads, sound, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.documents import data_url, pdf, png
from tests.installation import Installation, WebProcess

SEES = "Gemma-4-31B-IT"


class Printed(NamedTuple):
    """What `curl -i` prints. Header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


type Curl = Callable[..., Printed]


@pytest.fixture
def curl(demo_web: WebProcess, demo_installation: Installation) -> Curl:
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not installed")

    def run(path: str, *options: str, key: str = demo_installation.secret) -> Printed:
        command = [str(program), "-sS", "-i", "--max-time", "30", f"{demo_web.url}{path}", *options]
        credential = ["-H", f"Authorization: Bearer {key}"] if key else []
        printed = subprocess.run([*command, *credential], check=True, capture_output=True).stdout
        head, _, body = printed.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Printed(int(first.split()[1]), headers, body)

    return run


def chat(curl: Curl, prompt: Any = "Hello [[tokens=6]]", *options: str, **fields: Any) -> Printed:
    body = {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": prompt}], **fields}
    json_type = ("-H", "Content-Type: application/json")
    return curl("/v1/chat/completions", *json_type, "-d", json.dumps(body), *options)


def test_a_whole_answer(curl: Curl) -> None:
    answer = chat(curl)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.document["choices"][0]["message"]["content"].startswith("## Hello")
    assert answer.document["usage"]["completion_tokens"] == 6
    assert len(answer.headers["x-request-id"]) == 36


def test_without_a_content_type_json_is_json(curl: Curl) -> None:
    body = {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": "Hello [[tokens=2]]"}]}
    assert curl("/v1/chat/completions", "-d", json.dumps(body)).status == 200


def test_a_stream_of_events(curl: Curl) -> None:
    answer = chat(curl, "Hello [[tokens=6]] [[pace=0.03]]", "-N", stream=True)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    *events, end = answer.body.split(b"\n\n")
    assert (events[-1], end) == (b"data: [DONE]", b"")
    assert b": keep-alive" in events
    chunks = [json.loads(event[6:]) for event in events if event.startswith(b"data: {")]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks).startswith("## Hello")


def test_a_round_of_tools(curl: Curl) -> None:
    function = {"name": "get_weather", "description": "Weather of a city", "parameters": {"type": "object"}}
    tools = [{"type": "function", "function": function}]
    asked = {"role": "user", "content": "What is the weather in Oslo?"}
    message = chat(curl, asked["content"], tools=tools).document["choices"][0]["message"]
    (call,) = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees"}
    answer = chat(curl, messages=[asked, message, result], tools=tools).document["choices"][0]
    assert answer["finish_reason"] == "stop"
    assert "4 degrees" in answer["message"]["content"]


def test_json_mode(curl: Curl) -> None:
    answer = chat(curl, "The river Rhine", response_format={"type": "json_object"})
    assert json.loads(answer.document["choices"][0]["message"]["content"])["topic"] == "The river Rhine"


def test_an_image(curl: Curl) -> None:
    picture = {"type": "image_url", "image_url": {"url": data_url(png(64, 64), "image/png")}}
    answer = chat(curl, [{"type": "text", "text": "What is this? [[tokens=4]]"}, picture], model=SEES)
    assert answer.document["usage"]["completion_tokens"] == 4


def test_an_upload_and_sound(curl: Curl, tmp_path: Path) -> None:
    (tmp_path / "letter.pdf").write_bytes(pdf("Dear reader"))
    read = curl("/v1/ocr", "-F", "model=MinerU2.5-Pro", "-F", f"file=@{tmp_path / 'letter.pdf'}")
    assert "Dear reader" in read.document["pages"][0]["markdown"]
    said = curl("/v1/audio/speech", "-d", json.dumps({"model": "OmniVoice", "input": "Hi"}))
    assert (said.headers["content-type"], said.body[:4]) == ("audio/wav", b"RIFF")


def test_what_is_refused_is_json(curl: Curl) -> None:
    unknown = chat(curl, model="gpt-7")
    assert (unknown.status, unknown.document["error"]["param"]) == (400, "model")
    malformed = curl("/v1/chat/completions", "-d", "{'model': 1}")
    assert (malformed.status, malformed.document["error"]["message"]) == (400, "Malformed JSON in request body")
    stranger = curl("/v1/models", key="")
    assert (stranger.status, stranger.headers["www-authenticate"]) == (401, "Bearer")
    wrong = curl("/v1/chat/completions")
    assert (wrong.status, wrong.headers["allow"]) == (405, "POST")


def test_a_large_body_is_sent_only_when_asked_for(curl: Curl, tmp_path: Path) -> None:
    """curl waits for `100 Continue` before a large body."""
    (tmp_path / "large.json").write_bytes(b'{"a":"' + b"x" * (21 * 2**20) + b'"}')
    answer = curl("/v1/chat/completions", "-H", "Expect: 100-continue", "--data-binary", f"@{tmp_path / 'large.json'}")
    assert (answer.status, answer.document["error"]["code"]) == (413, "request_too_large")
