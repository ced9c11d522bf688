"""Questions of a decision as a form has them, and as a request does.

A form's fields of one question carry its mark: `name-3`, `type-3`, `option-3` several times; `question` has the
marks.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext

KINDS = ("noul", "choice", "score")
MAX_QUESTIONS = 64


class Malformed(Exception):
    """A question that cannot be asked as it is; the text says why, in the reader's language."""


@dataclass(slots=True)
class Question:
    kind: str = "choice"
    name: str = ""
    instructions: str = ""
    # Of a choice: each option with what it means.
    options: list[tuple[str, str]] = field(default_factory=list)
    # Of a score, from the lowest on.
    levels: list[str] = field(default_factory=list)
    # Of a noul: what true and false mean.
    if_true: str = ""
    if_false: str = ""
    mark: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def shown_options(self) -> list[tuple[str, str]]:
        return self.options or [("", ""), ("", "")]

    @property
    def shown_levels(self) -> list[str]:
        return self.levels or ["", "", ""]

    def request(self) -> dict[str, Any]:
        """As the request has it. Raises Malformed."""
        if not self.name:
            raise Malformed(gettext("Give each question a name."))
        asked: dict[str, Any] = {"type": self.kind}
        if self.instructions:
            asked["instructions"] = self.instructions
        if (criteria := self._criteria()) is not None:
            asked["criteria"] = criteria
        if self.kind == "noul" and len(asked) == 1:
            raise Malformed(gettext("“%s” needs instructions: what is to be true or false?") % self.name)
        return asked

    def _criteria(self) -> Any:
        match self.kind:
            case "choice":
                if not self.options:
                    raise Malformed(gettext("“%s” needs at least one option to choose from.") % self.name)
                return {option: about or None for option, about in self.options}
            case "score":
                if not self.levels:
                    raise Malformed(gettext("“%s” needs at least one level.") % self.name)
                return self.levels
        meanings = {"true": self.if_true, "false": self.if_false}
        return {truth: text for truth, text in meanings.items() if text} or None


def questions_in(form: QueryDict) -> list[Question]:
    """Empty options and levels are left out, as if nobody had added them."""
    found = []
    for mark in form.getlist("question")[:MAX_QUESTIONS]:
        kind = form.get(f"type-{mark}", "")
        options = zip_longest(_texts(form, f"option-{mark}"), _texts(form, f"about-{mark}"), fillvalue="")
        found.append(
            Question(
                kind=kind if kind in KINDS else "choice",
                name=_field(form, f"name-{mark}"),
                instructions=_field(form, f"instructions-{mark}"),
                options=[(option, about) for option, about in options if option],
                levels=[level for level in _texts(form, f"level-{mark}") if level],
                if_true=_field(form, f"true-{mark}"),
                if_false=_field(form, f"false-{mark}"),
                mark=mark,
            )
        )
    return found


def request_of(questions: list[Question]) -> dict[str, Any]:
    """The questions by name. Raises Malformed."""
    asked: dict[str, Any] = {}
    for question in questions:
        if question.name in asked:
            raise Malformed(gettext("Two questions are called “%s”. Names must differ.") % question.name)
        asked[question.name] = question.request()
    if not asked:
        raise Malformed(gettext("Add a question first."))
    return asked


def questions_of(asked: Mapping[str, Any]) -> list[Question]:
    """The form's questions of a request made before."""
    return [_question(name, question) for name, question in asked.items()]


def _question(name: str, asked: Mapping[str, Any]) -> Question:
    question = Question(kind=asked["type"], name=name, instructions=_text(asked.get("instructions")))
    criteria = asked.get("criteria")
    match question.kind:
        case "choice" if isinstance(criteria, Mapping):
            question.options = [(option, _text(about)) for option, about in criteria.items()]
        case "score" if isinstance(criteria, list):
            question.levels = [_text(level) for level in criteria]
        case "noul" if isinstance(criteria, Mapping):
            question.if_true, question.if_false = _text(criteria.get("true")), _text(criteria.get("false"))
    return question


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _field(form: QueryDict, name: str) -> str:
    return form.get(name, "").replace("\x00", "").strip()


def _texts(form: QueryDict, name: str) -> list[str]:
    return [text.replace("\x00", "").strip() for text in form.getlist(name)]
