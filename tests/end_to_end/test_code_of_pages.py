"""What the "Code" dialogs of documents, speech and decisions show, run as it stands: curl, Python, JavaScript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from playground.code_python import picture_mark
from playground.endpoint_examples import decision_examples, document_examples, speech_examples
from tests.documents import pdf, png
from tests.end_to_end.example_run import run_example
from tests.installation import Installation, WebProcess

# As unpleasant as a file's name may be.
NAME = """re"port; $HOME `it's`, 报告.pdf"""
SPOKEN = """Don't say "no" to $HOME, `x` or \\ and 世界"""
DECISION: dict[str, Any] = {
    "model": "Clef",
    "state": 'It\'s "late" at $HOME',
    "images": [picture_mark("image/png", "picture.png")],
    "questions": {"team": {"type": "choice", "criteria": {"don't": None, "do": "it"}}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_bytes(pdf("Report\nIncome rose.", "End"))
    (tmp_path / "picture.png").write_bytes(png(3, 2))
    return tmp_path


LANGUAGES = ["curl", "python", "javascript"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_document(language: str, folder: Path, demo_web: WebProcess, demo_installation: Installation) -> None:
    examples = document_examples(model="MinerU2.5-Pro", name=NAME, site_url=demo_web.url)
    (example,) = [example for example in examples if example.id == language]
    assert "Income rose." in run_example(example, folder, demo_installation.secret)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text(
    language: str,
    folder: Path,
    demo_web: WebProcess,
    demo_installation: Installation,
    request: pytest.FixtureRequest,
) -> None:
    body = {"model": "OmniVoice", "input": SPOKEN, "speed": 2, "response_format": "wav"}
    (example,) = [one for one in speech_examples(body=body, site_url=demo_web.url) if one.id == language]
    if language == "javascript":
        packages = Path(request.config.cache.mkdir("openai-of-node")) / "node_modules"
        if not packages.exists():
            pytest.skip("the openai client of Node is not installed")
        (folder / "node_modules").symlink_to(packages)
    run_example(example, folder, demo_installation.secret)
    assert (folder / "speech.wav").read_bytes().startswith(b"RIFF")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_decision(language: str, folder: Path, demo_web: WebProcess, demo_installation: Installation) -> None:
    (example,) = [one for one in decision_examples(body=DECISION, site_url=demo_web.url) if one.id == language]
    assert "probabilities" in run_example(example, folder, demo_installation.secret) or language == "python"


def test_a_voice_is_named_where_there_is_one() -> None:
    body = {"model": "OmniVoice", "input": "Hi", "voice": "low"}
    python = speech_examples(body=body, site_url="https://tf.example")[1].source
    assert 'voice="low"' in python
    assert "omit" not in python
