"""The accepted request of `/v1/systemone`, checked and rebuilt: a state, pictures, questions with their criteria.

A question that cannot be answered as it is put is a 422; everything else that is malformed is a 400.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.catalog import Endpoint, Model
from gateway.data_url import read_data_url
from gateway.document_limits import Unfit, check_picture
from gateway.errors import InvalidRequest
from gateway.fields import FindModel, Json, anything, rebuild, refusal, served_model, text

MAX_QUESTIONS = 64
MAX_OPTIONS = 255
MAX_MEDIA_BYTES = 50 * 1024 * 1024
TYPES = ("noul", "choice", "score")
QUESTION_FIELDS = ("type", "instructions", "criteria")


@dataclass(slots=True)
class SystemoneRequest:
    """`body` goes on to the backend, its `model` still the public id."""

    model: str
    body: Json
    dropped: list[str] = field(default_factory=list)


def parse_systemone_request(document: Json, *, find_model: FindModel) -> SystemoneRequest:
    body, dropped = rebuild(document, checks=FIELDS, required=("model", "state", "questions"))
    body["questions"] = _questions(body["questions"], dropped)
    model = served_model(body["model"], endpoint=Endpoint.SYSTEMONE, find_model=find_model)
    _check_media(body, model)
    return SystemoneRequest(body["model"], body, dropped)


def _state(value: Any, param: str) -> None:
    if not isinstance(value, str | dict | list):
        raise refusal(param, "a string, an object or a list")


def _check_media(body: Json, model: Model) -> None:
    for name, kind in (("images", "image"), ("videos", "video")):
        if not (urls := body.get(name)):
            body.pop(name, None)
            continue
        if kind not in model.input_modalities:
            raise InvalidRequest(f"Model {model.id} does not support {kind} input.", param=name)
        if kind == "image" and model.max_images is not None and len(urls) > model.max_images:
            raise refusal(name, f"at most {model.max_images} images for {model.id}")


def _media(kind: str) -> Any:
    def check(value: Any, param: str) -> None:
        if not isinstance(value, list):
            raise refusal(param, "a list of data URLs")
        for index, url in enumerate(value):
            where = f"{param}[{index}]"
            if not isinstance(url, str):
                raise refusal(where, "a data URL")
            inline = read_data_url(url, param=where, limit_bytes=MAX_MEDIA_BYTES)
            if not inline.media_type.startswith(f"{kind}/") or not inline.data:
                raise refusal(where, f"a data URL of {kind} data")
            if kind == "image":
                _check_picture(inline.data, where)

    return check


def _check_picture(data: bytes, param: str) -> None:
    try:
        check_picture(data)
    except Unfit as error:
        raise InvalidRequest(error.message, code=error.code, param=param) from None


FIELDS = {
    "model": text,
    "state": _state,
    "images": _media("image"),
    "videos": _media("video"),
    "questions": anything,
}


# -- questions -----------------------------------------------------------------------------------


def _questions(value: Any, dropped: list[str]) -> Json:
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_QUESTIONS:
        raise _malformed("questions", f"a map of 1 to {MAX_QUESTIONS} questions")
    return {name: _question(question, f"questions.{name}", dropped) for name, question in value.items()}


def _question(question: Any, where: str, dropped: list[str]) -> Json:
    if not isinstance(question, dict):
        raise _malformed(where, "an object")
    kind = question.get("type")
    if kind not in TYPES:
        raise _malformed(f"{where}.type", f"one of {', '.join(TYPES)}")
    dropped += [unknown for name in question if name not in QUESTION_FIELDS
                and (unknown := f"questions.{name}") not in dropped]  # fmt: skip
    asked = {name: question[name] for name in QUESTION_FIELDS if question.get(name) is not None}
    instructions, criteria = asked.get("instructions"), asked.get("criteria")
    if instructions is not None and not _is_content(instructions):
        raise _malformed(f"{where}.instructions", "a string, an object or a list")
    match kind:
        case "noul":
            _check_noul(criteria, where, is_told=instructions is not None)
        case "choice":
            _check_choice(criteria, f"{where}.criteria")
        case "score":
            _check_score(criteria, f"{where}.criteria")
    return asked


def _check_noul(criteria: Any, where: str, *, is_told: bool) -> None:
    if criteria is None:
        if not is_told:
            raise _malformed(where, "a question with instructions or criteria")
        return
    texts = isinstance(criteria, str) or (
        isinstance(criteria, dict)
        and set(criteria) <= {"true", "false"}
        and all(text is None or _is_content(text) for text in criteria.values())
    )
    if not texts:
        raise _malformed(f"{where}.criteria", "a string, or an object that describes true and false")


def _check_choice(criteria: Any, where: str) -> None:
    if not isinstance(criteria, dict) or not 1 <= len(criteria) <= MAX_OPTIONS:
        raise _malformed(where, f"a map of 1 to {MAX_OPTIONS} options")
    if not all(text is None or _is_content(text) for text in criteria.values()):
        raise _malformed(where, "a map of options to descriptions")


def _check_score(criteria: Any, where: str) -> None:
    if not isinstance(criteria, list) or not 1 <= len(criteria) <= MAX_OPTIONS:
        raise _malformed(where, f"a list of 1 to {MAX_OPTIONS} levels")
    if not all(_is_content(level) for level in criteria):
        raise _malformed(where, "a list of the levels' descriptions")


def _is_content(value: Any) -> bool:
    return isinstance(value, str | dict | list)


def _malformed(param: str, expected: str) -> InvalidRequest:
    return refusal(param, expected, status=422)
