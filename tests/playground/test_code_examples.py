"""Code that people copy has to run as it stands."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from gateway.catalog import load
from playground.code_examples import chat_examples, curl, model_examples, python_openai
from playground.code_python import picture_mark

BODY: dict[str, Any] = {
    "model": "Gemma-4-31B-IT",
    "messages": [
        {"role": "system", "content": 'Don\'t be "long".'},
        {"role": "user", "content": "Line one\nline two with $HOME, `x`, \\n and 中文"},
    ],
    "stream": True,
    "temperature": 0.5,
    "chat_template_kwargs": {"enable_thinking": True},
}


def test_curl_sends_exactly_the_body() -> None:
    words = shlex.split(curl(path="/v1/chat/completions", body=BODY, site_url="https://tf.example"))
    assert words[:3] == ["curl", "-N", "https://tf.example/v1/chat/completions"]
    assert json.loads(words[words.index("-d") + 1]) == BODY
    assert "Authorization: Bearer $TOKEN_FACTORY_KEY" in words


def test_python_calls_openai_with_exactly_the_body() -> None:
    tree = ast.parse(python_openai(body=BODY, site_url="https://tf.example"))
    call = next(
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("create")
    )
    arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    extra = arguments.pop("extra_body")
    assert arguments | extra == BODY


def test_javascript_names_address_and_key_variable() -> None:
    javascript = chat_examples(body=BODY, site_url="https://tf.example")[3].source
    assert 'baseURL: "https://tf.example/v1", apiKey: process.env.TOKEN_FACTORY_KEY' in javascript
    assert "enable_thinking: true" in javascript


@pytest.mark.parametrize("model_id", list(load()))
def test_every_model_has_code_for_its_own_endpoint(model_id: str) -> None:
    model = load()[model_id]
    examples = model_examples(model=model, site_url="https://tf.example")
    labels = ["Python · openai", "Python · anthropic"] if model.is_chat else ["Python"]
    assert [example.label for example in examples] == ["curl", *labels, "JavaScript"]
    words = shlex.split(examples[0].source)
    assert f"https://tf.example{model.endpoint_path}" in words
    assert json.loads(words[words.index("-d") + 1])["model"] == model_id
    ast.parse(examples[1].source)


def test_curl_lets_the_shell_read_a_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(bytes(range(256)))
    body = {"images": [picture_mark("image/png", "a.png"), "it's"]}
    command = curl(path="/v1/systemone", body=body, site_url="https://tf.example").replace(
        "curl ", "printf '%s\\n' ", 1
    )
    printed = subprocess.run(["bash", "-ec", command], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert json.loads(printed[printed.index("{") :]) == {
        "images": [f"data:image/png;base64,{b64encode(bytes(range(256))).decode()}", "it's"]
    }
