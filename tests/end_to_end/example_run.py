"""Examples of code, run as they stand: what they print."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import warnings
from contextlib import chdir, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest

from playground.code_examples import Example
from playground.code_python import KEY_VARIABLE


def run_example(example: Example, folder: Path, secret: str) -> str:
    """In `folder`, with nothing but the key in the environment. Fails the test with what it complains of."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), KEY_VARIABLE: secret}
    if example.language == "python":
        with patch.dict(os.environ, environment, clear=True), chdir(folder):
            return _run_python(example.source)
    commands = {
        "bash": ["bash", "-euc", example.source.replace("curl ", "curl --silent --show-error --fail-with-body ", 1)],
        "javascript": ["node", "--input-type=module", "--eval", example.source],
    }
    command = commands[example.language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run_python(source: str) -> str:
    """In this process: the clients take seconds to be imported anew."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with redirect_stdout(io.StringIO()) as printed, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(compile(source, "example.py", "exec"), names)  # noqa: S102 -- the product's own examples
        finally:
            # A program of its own would end here.
            for value in names.values():
                if hasattr(value, "close") and not isinstance(value, type | ModuleType):
                    value.close()
    return printed.getvalue()
