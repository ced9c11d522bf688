"""The official `openai` client of Node, unmodified: one walk through all of it in one process, looked at here.

The client is installed once into pytest's cache folder. Skipped by name without Node or where npm's registry is away.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.catalog import load
from tests.documents import data_url, png
from tests.installation import Installation, WebProcess

WALK = Path(__file__).parent / "node" / "openai_walk.mjs"
# The newest of these that this Node runs: npm looks at what a release says it needs.
CLIENT = "openai@>=6 <8"
NPM_SECONDS = 90
MODELS = {"TEXT_MODEL": "DeepSeek-V4-Flash", "THINKING_MODEL": "GLM-5.3-Flash", "VISION_MODEL": "Gemma-4-31B-IT"}
CALL = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}


@pytest.fixture(scope="module")
def client_folder(request: pytest.FixtureRequest) -> Path:
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node is not installed")
    folder = Path(request.config.cache.mkdir("openai-of-node"))
    if not (folder / "node_modules" / "openai" / "package.json").exists():
        (folder / "package.json").write_text('{"private": true}')
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0"]
        command = ["npm", "install", *options, CLIENT]
        try:
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=NPM_SECONDS)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pytest.skip("npm cannot install the openai client")
    return folder


@pytest.fixture(scope="module")
def seen(client_folder: Path, demo_web: WebProcess, demo_installation: Installation) -> dict[str, Any]:
    limited = demo_installation.run_python(
        "import django; django.setup()\nfrom accounts.keys import KeyTerms, issue_key\n"
        "from accounts.models import Team\nterms = KeyTerms(rpm_limit=1)\n"
        "print(issue_key(team=Team.objects.earliest('pk'), created_by=None, name='one a minute', terms=terms).secret)"
    ).strip()
    environment = {
        "PATH": os.environ["PATH"],
        "OPENAI_BASE_URL": f"{demo_web.url}/v1",
        "OPENAI_API_KEY": demo_installation.secret,
        "LIMITED_KEY": limited,
        "PICTURE": data_url(png(64, 64), "image/png"),
    }
    command = ["node", str(WALK), str(client_folder)]
    walked = subprocess.run(command, env=environment | MODELS, check=True, capture_output=True, timeout=120)
    found: dict[str, Any] = json.loads(walked.stdout)
    return found


def test_models_are_listed_and_retrieved(seen: dict[str, Any]) -> None:
    assert seen["models"] == {"listed": list(load()), "one": "Qwen/Qwen3-30B-A3B-FP8"}


def test_a_whole_answer(seen: dict[str, Any]) -> None:
    whole = seen["whole"]
    assert (whole["model"], whole["finish_reason"]) == ("GLM-5.3-Flash", "stop")
    assert whole["message"]["content"].startswith("## Why is snow white?")
    assert whole["message"]["reasoning"]
    assert whole["usage"]["completion_tokens"] == 17
    assert len(whole["request_id"]) == 36


def test_a_stream_with_keep_alives_between_its_chunks(seen: dict[str, Any]) -> None:
    stream = seen["stream"]
    assert stream["content"].startswith("## Name three rivers.")
    assert stream["reasoning"].startswith("The question is about")
    assert (stream["finish_reason"], stream["usage"]["completion_tokens"]) == ("stop", 25)
    assert stream["chunks"] > 25


def test_the_stream_helper_adds_up_to_the_same(seen: dict[str, Any]) -> None:
    assert seen["helper"]["content"] == seen["helper"]["final"]
    assert seen["helper"]["final"].startswith("## Hello")


def test_a_round_of_tools(seen: dict[str, Any]) -> None:
    (call,) = seen["tools"]["calls"]
    assert (call["type"], call["function"]) == ("function", CALL)
    assert (seen["tools"]["finish_reason"], seen["tools"]["then"]) == ("tool_calls", "stop")


def test_streamed_tool_calls_are_put_together(seen: dict[str, Any]) -> None:
    assert [call["function"] for call in seen["streamed_tools"]] == [CALL, CALL]
    assert len({call["id"] for call in seen["streamed_tools"]}) == 2


def test_the_tool_runner_loops_to_an_answer(seen: dict[str, Any]) -> None:
    assert seen["runner"]["asked"] == [{"city": "Oslo"}]
    assert "4 degrees" in seen["runner"]["content"]


def test_json_mode_and_schema(seen: dict[str, Any]) -> None:
    assert seen["json"]["object"]["topic"] == "The river Rhine as JSON"
    assert set(seen["json"]["schema"]) == {"river", "length"}


def test_an_image(seen: dict[str, Any]) -> None:
    assert seen["image"]["content"]
    assert seen["image"]["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize(
    ("name", "error", "status", "code", "param"),
    [
        ("unknown_model", "BadRequestError", 400, None, "model"),
        ("wrong_type", "BadRequestError", 400, None, "temperature"),
        ("refused_by_the_backend", "UnprocessableEntityError", 422, 422, None),
        ("no_key", "AuthenticationError", 401, "invalid_api_key", None),
        ("unknown_path", "NotFoundError", 404, "not_found", None),
        ("no_such_model", "NotFoundError", 404, "not_found", "model"),
        ("too_many", "RateLimitError", 429, "token_rate_limit_exceeded", None),
    ],
)
def test_errors_are_the_clients_own(
    seen: dict[str, Any], name: str, error: str, status: int, code: Any, param: str | None
) -> None:
    found = seen["errors"][name]
    assert (found["name"], found["status"], found["code"], found["param"]) == (error, status, code, param)
    assert len(found["requestID"]) == 36


def test_leaving_a_stream_ends_it(seen: dict[str, Any]) -> None:
    assert seen["leaving"] == {"chunks": 3, "aborted": True}


def test_speech(seen: dict[str, Any]) -> None:
    assert seen["speech"] == {"type": "audio/wav", "begins": "RIFF"}
