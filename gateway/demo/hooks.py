"""Wishes a tester writes into the last user message, like `[[tokens=500]] [[pace=0]]`.

tokens    length of the answer in tokens, exactly
thinking  length of the thinking in tokens, exactly, where the model thinks at all
pace      seconds between tokens; a call without streaming then also takes its time
calls     how many tool calls to make at once
"""

import re
from dataclasses import dataclass

_HOOK = re.compile(r"\[\[(tokens|thinking|pace|calls)=(\d{1,6}(?:\.\d{1,6})?)\]\]")


@dataclass(frozen=True, slots=True)
class Hooks:
    tokens: int | None = None
    thinking: int | None = None
    pace_seconds: float | None = None
    calls: int = 1


def read(text: str) -> Hooks:
    found = {name: float(value) for name, value in _HOOK.findall(text)}
    return Hooks(
        tokens=int(found["tokens"]) if "tokens" in found else None,
        thinking=int(found["thinking"]) if "thinking" in found else None,
        pace_seconds=found.get("pace"),
        calls=min(max(int(found.get("calls", 1)), 1), 16),
    )


def without(text: str) -> str:
    return _HOOK.sub("", text).strip()
