"""JSON as Python source, with pictures read from files."""

from __future__ import annotations

import json
import re
from typing import Any

KEY_VARIABLE = "TOKEN_FACTORY_KEY"
# No text of a message has NUL: what begins with it is ours.
PICTURE = re.compile(r"\x00picture:([\w/+.-]+):([\w.-]+)")
PICTURE_BYTES = re.compile(r"\x00bytes:([\w.-]+)")
PICTURE_IN_JSON = re.compile(r'"\\u0000picture:([\w/+.-]+):([\w.-]+)"')

READ_PICTURE = """

def picture(path: str) -> str:
    return b64encode(Path(path).read_bytes()).decode()
"""


def picture_mark(media_type: str, file_name: str) -> str:
    """Stands for a picture's data URL; in code it becomes an expression that reads the file."""
    return f"\x00picture:{media_type}:{file_name}"


def bytes_mark(file_name: str) -> str:
    """The same without the address around it: its base64 alone."""
    return f"\x00bytes:{file_name}"


def python_imports(source: str, package: str) -> str:
    """The head of a program: what `source` needs."""
    if "picture(" not in source:
        return f"import os\n\n{package}\n\n"
    return f"import os\nfrom base64 import b64encode\nfrom pathlib import Path\n\n{package}\n{READ_PICTURE}\n\n"


def python_literal(value: Any, *, depth: int) -> str:
    """One entry a line where it is not short."""
    if isinstance(value, dict | list) and value and len(json.dumps(value)) > 60:
        inner, outer = "    " * (depth + 1), "    " * depth
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return opening + "\n" + "".join(f"{inner}{entry},\n" for entry in _entries(value, depth + 1)) + outer + closing
    if isinstance(value, dict):
        return "{" + ", ".join(_entries(value, 0)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_entries(value, 0)) + "]"
    if isinstance(value, str):
        if match := PICTURE.fullmatch(value):
            return f"f\"data:{match[1]};base64,{{picture('{match[2]}')}}\""
        if match := PICTURE_BYTES.fullmatch(value):
            return f'picture("{match[1]}")'
        # JSON's escapes are Python's, but for lone surrogates, which no message has.
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _entries(value: Any, depth: int) -> list[str]:
    if isinstance(value, dict):
        return [f"{python_literal(name, depth=0)}: {python_literal(item, depth=depth)}" for name, item in value.items()]
    return [python_literal(item, depth=depth) for item in value]
