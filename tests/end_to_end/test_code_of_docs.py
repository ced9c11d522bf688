"""Every example of the documentation, run as it stands against a running installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from playground.docs_examples import docs_examples
from tests.end_to_end.example_run import run_example
from tests.installation import Installation, WebProcess

# What a run has to print, by the example's name; the demo backend answers.
PRINTED = {
    "first": "demo",
    "models": "Qwen3.8-27B",
    "me": '"team"',
    "x-api-key": '"object"',
    "refused": "400 Requested model no-such-model not supported",
    # The installation of the tests has no limits to tell of.
    "headers": "x-request-id",
    "waiting": "demo",
    "thinking": "demo",
    "stream": "demo",
    "portable": "x-adapted: developer->system",
    "usage": "points",
}
MODELS = {"model": "DeepSeek-V4-Flash", "thinker": "DeepSeek-V4-Flash", "strict": "Qwen3.8-27B"}
NAMES = [(name, example.id) for name, examples in docs_examples(site="", **MODELS).items() for example in examples]


@pytest.mark.parametrize(("name", "id"), NAMES)
def test_an_example_runs_as_it_stands(
    name: str, id: str, tmp_path: Path, demo_web: WebProcess, demo_installation: Installation
) -> None:
    examples = docs_examples(site=demo_web.url, **MODELS)[name]
    (example,) = [one for one in examples if one.id == id]
    printed = run_example(example, tmp_path, demo_installation.secret)
    shown = PRINTED[name] if example.language == "bash" or name not in {"me", "usage"} else ""
    assert shown.lower() in printed.lower()
    assert printed.strip()
