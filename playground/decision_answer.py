"""A model's answers as the page shows them: a verdict, and each possible answer with its probability as a bar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    about: str
    share: float
    is_best: bool

    @property
    def percent(self) -> str:
        return f"{self.share:.1%}"

    @property
    def width(self) -> str:
        """Of a hundred, as SVG wants it whatever the reader's language."""
        return f"{min(max(self.share, 0.0), 1.0) * 100:.2f}"


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    name: str
    kind: str
    instructions: str
    verdict: str
    confidence: str
    bars: tuple[Bar, ...]


def shown_answers(questions: Mapping[str, Any], answers: Mapping[str, Any]) -> list[ShownAnswer]:
    """In the order they were asked. What a model server leaves out is not shown, and never made up."""
    return [_shown(name, asked, answers.get(name)) for name, asked in questions.items()]


def _shown(name: str, asked: Mapping[str, Any], answer: Any) -> ShownAnswer:
    found = answer if isinstance(answer, Mapping) else {}
    shares = _shares(found)
    best = max(shares, key=lambda label: shares[label], default="")
    about = _meanings(asked, found)
    bars = tuple(Bar(_label(label), about.get(label, ""), share, label == best) for label, share in shares.items())
    confidence = found.get("confidence")
    return ShownAnswer(
        name=name,
        kind=asked["type"],
        instructions=asked["instructions"] if isinstance(asked.get("instructions"), str) else "",
        verdict=_verdict(found, best),
        confidence=f"{confidence:.0%}" if _is_number(confidence) else "",
        bars=bars,
    )


def _shares(answer: Mapping[str, Any]) -> dict[str, float]:
    likely = answer.get("probabilities")
    if not isinstance(likely, Mapping):
        true = answer.get("noul")
        likely = {"true": true, "false": 1 - true} if isinstance(true, int | float) else {}
    return {str(label): float(share) for label, share in likely.items() if _is_number(share)}


def _meanings(asked: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, str]:
    criteria = answer.get("legend") or asked.get("criteria")
    if isinstance(criteria, list):
        criteria = {str(level): text for level, text in enumerate(criteria)}
    if not isinstance(criteria, Mapping):
        return {}
    return {str(label): text for label, text in criteria.items() if isinstance(text, str)}


def _verdict(answer: Mapping[str, Any], best: str) -> str:
    choice, score = answer.get("choice"), answer.get("score")
    if isinstance(choice, str):
        return choice
    if _is_number(score):
        return f"{score:.2f}"
    return _label(best)


def _label(label: str) -> str:
    return {"true": gettext("true"), "false": gettext("false")}.get(label, label)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
