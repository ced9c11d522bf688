"""Requests of `/v1/systemone`: states, media by model, and questions of three types."""

from typing import Any

import pytest

from gateway.catalog import load
from gateway.errors import InvalidRequest
from gateway.systemone_schema import SystemoneRequest, parse_systemone_request
from tests.documents import data_url, png

CATALOG = load()
IMAGE = "data:image/png;base64,AAAA"
VIDEO = "data:video/mp4;base64,AAAA"
NOUL = {"type": "noul", "instructions": "Is it raining?"}


def parse(**fields: Any) -> SystemoneRequest:
    document = {"model": "d3", "state": "Wet streets", "questions": {"rain": NOUL}, **fields}
    return parse_systemone_request(document, find_model=CATALOG.get)


def refused(**fields: Any) -> tuple[int, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    return caught.value.status, caught.value.param


def test_the_three_types_go_on_and_unknown_fields_are_dropped() -> None:
    questions: dict[str, dict[str, Any]] = {
        "rain": NOUL,
        "sun": {"type": "noul", "criteria": {"true": "shadows", "false": None}},
        "where": {"type": "choice", "instructions": ["Look"], "criteria": {"here": "near", "there": None}},
        "how_much": {"type": "score", "criteria": ["none", "some", {"text": "much"}]},
    }
    noisy = {name: {**question, "weight": 3, "instructions": question.get("instructions")} for name, question in
             questions.items()}  # fmt: skip
    request = parse(questions=noisy, temperature=1)
    assert request.body == {"model": "d3", "state": "Wet streets", "questions": questions}
    assert sorted(request.dropped) == ["questions.weight", "temperature"]


@pytest.mark.parametrize("state", ["", "text", {"a": [1]}, ["a", {"b": None}]])
def test_states(state: Any) -> None:
    assert parse(state=state).body["state"] == state


@pytest.mark.parametrize("state", [None, 3, True])
def test_states_that_are_none(state: Any) -> None:
    assert refused(state=state) == (400, "state")


def test_sixty_four_questions_and_no_more() -> None:
    assert len(parse(questions={f"q{n}": NOUL for n in range(64)}).body["questions"]) == 64
    assert refused(questions={f"q{n}": NOUL for n in range(65)}) == (422, "questions")
    assert refused(questions={}) == (422, "questions")
    assert refused(questions=[NOUL]) == (422, "questions")
    assert refused(questions=None) == (400, "questions")


@pytest.mark.parametrize(
    ("question", "where"),
    [
        ("x", ""),
        ({}, ".type"),
        ({"type": "box"}, ".type"),
        ({"type": ["noul"]}, ".type"),
        ({"type": "noul"}, ""),
        ({"type": "noul", "instructions": 3}, ".instructions"),
        ({"type": "noul", "criteria": {"yes": "x"}}, ".criteria"),
        ({"type": "noul", "criteria": ["x"]}, ".criteria"),
        ({"type": "choice"}, ".criteria"),
        ({"type": "choice", "criteria": ["a", "b"]}, ".criteria"),
        ({"type": "choice", "criteria": {}}, ".criteria"),
        ({"type": "choice", "criteria": {"a": 3}}, ".criteria"),
        ({"type": "choice", "criteria": {str(n): None for n in range(256)}}, ".criteria"),
        ({"type": "score"}, ".criteria"),
        ({"type": "score", "criteria": {"0": "a"}}, ".criteria"),
        ({"type": "score", "criteria": []}, ".criteria"),
        ({"type": "score", "criteria": ["a", None]}, ".criteria"),
    ],
)
def test_malformed_questions_are_422(question: Any, where: str) -> None:
    assert refused(questions={"ok": NOUL, "q": question}) == (422, f"questions.q{where}")


def test_clef_takes_four_images_and_no_video() -> None:
    assert parse(model="Clef", images=[IMAGE] * 4).body["images"] == [IMAGE] * 4
    assert refused(model="Clef", images=[IMAGE] * 5) == (400, "images")
    assert refused(model="Clef", videos=[VIDEO]) == (400, "videos")
    assert "videos" not in parse(model="Clef", videos=[]).body


@pytest.mark.parametrize("model", ["d3", "d3-flash"])
def test_d3_takes_both(model: str) -> None:
    body = parse(model=model, images=[IMAGE] * 5, videos=[VIDEO]).body
    assert (len(body["images"]), body["videos"]) == (5, [VIDEO])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"images": IMAGE}, "images"),
        ({"images": [IMAGE, 3]}, "images[1]"),
        ({"images": ["https://example.com/a.png"]}, "images[0]"),
        ({"images": [VIDEO]}, "images[0]"),
        ({"images": ["data:image/png;base64,@"]}, "images[0]"),
        ({"images": ["data:image/png;base64,"]}, "images[0]"),
        ({"images": [IMAGE, data_url(png(1, 1)[:18], "image/png")]}, "images[1]"),
        ({"images": [data_url(b"GIF89a" + b"\xff" * 4, "image/gif")]}, "images[0]"),
        ({"videos": [IMAGE]}, "videos[0]"),
    ],
)
def test_media_that_are_none(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields) == (400, param)


@pytest.mark.parametrize("model", ["DeepSeek-V4-Flash", "MinerU2.5-Pro", "nothing"])
def test_a_model_of_another_endpoint_is_unknown(model: str) -> None:
    with pytest.raises(InvalidRequest, match=f"Requested model {model} not supported"):
        parse(model=model)
