"""Answers as model servers give them, and what the page makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from playground.decision_answer import ShownAnswer, shown_answers


def shown(asked: dict[str, Any], answer: Any) -> ShownAnswer:
    (found,) = shown_answers({"q": asked}, {"q": answer})
    return found


def test_the_likeliest_answer_stands_out_and_the_order_stays() -> None:
    asked = {"type": "choice", "criteria": {"a": "first", "b": None, "c": "last"}}
    found = shown(asked, {"choice": "b", "confidence": 0.316, "probabilities": {"a": 0.2, "b": 0.7, "c": 0.1}})
    assert (found.verdict, found.confidence) == ("b", "32%")
    assert [(bar.label, bar.about, bar.percent, bar.is_best) for bar in found.bars] == [
        ("a", "first", "20.0%", False),
        ("b", "", "70.0%", True),
        ("c", "last", "10.0%", False),
    ]


def test_a_noul_without_probabilities_has_those_of_its_number() -> None:
    found = shown({"type": "noul", "instructions": "Is it?"}, {"noul": 0.25})
    assert [(bar.label, bar.share) for bar in found.bars] == [("true", 0.25), ("false", 0.75)]
    assert (found.verdict, found.instructions) == ("false", "Is it?")


def test_levels_have_the_legend_or_else_what_was_asked() -> None:
    asked = {"type": "score", "criteria": ["low", "high"]}
    likely = {"0": 0.5, "1": 0.5}
    assert [bar.about for bar in shown(asked, {"score": 0.5, "probabilities": likely}).bars] == ["low", "high"]
    told = {"score": 0.5, "probabilities": likely, "legend": {"0": "LOW", "1": "HIGH"}}
    assert [bar.about for bar in shown(asked, told).bars] == ["LOW", "HIGH"]
    assert shown(asked, told).verdict == "0.50"


@pytest.mark.parametrize(
    "answer",
    [None, 3, [], {}, {"probabilities": None}, {"probabilities": [1]}, {"probabilities": {"a": "x"}}, {"noul": "x"}],
)
def test_what_a_server_leaves_out_is_not_made_up(answer: Any) -> None:
    found = shown({"type": "noul"}, answer)
    assert (found.bars, found.verdict, found.confidence) == ((), "", "")


def test_bars_stay_within_their_line() -> None:
    found = shown({"type": "choice", "criteria": {}}, {"probabilities": {"a": 1.5, "b": -1, "c": 1 / 3}})
    assert [bar.width for bar in found.bars] == ["100.00", "0.00", "33.33"]
