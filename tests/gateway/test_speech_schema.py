"""Requests of `/v1/audio/speech`: characters are code points, counted exactly."""

from typing import Any

import pytest

from gateway.catalog import load
from gateway.errors import InvalidRequest
from gateway.speech_schema import SpeechRequest, parse_speech_request

CATALOG = load()


def parse(**fields: Any) -> SpeechRequest:
    return parse_speech_request({"model": "OmniVoice", "input": "Hello", **fields}, find_model=CATALOG.get)


def refused(**fields: Any) -> tuple[int, str | None]:
    with pytest.raises(InvalidRequest) as caught:
        parse(**fields)
    return caught.value.status, caught.value.param


def test_every_field_goes_on_and_others_are_dropped() -> None:
    fields = {"voice": "alloy", "response_format": "mp3", "speed": 1.5, "instructions": "Calmly."}
    request = parse(**fields, stream_format="audio", user=None)
    assert request.body == {"model": "OmniVoice", "input": "Hello", **fields}
    assert sorted(request.dropped) == ["stream_format", "user"]
    assert request.content_type == b"audio/mpeg"


def test_wav_is_the_default() -> None:
    assert parse(voice=None, speed=None).content_type == b"audio/wav"


@pytest.mark.parametrize(
    ("text", "characters"),
    [("a", 1), ("é", 1), ("e\u0301", 2), ("世界", 2), ("👍🏽", 2), ("👩\u200d👩\u200d👧", 5), ("\n", 1)],
)
def test_characters_are_code_points(text: str, characters: int) -> None:
    assert parse(input=text).characters == characters


@pytest.mark.parametrize("character", ["a", "世", "👍", "\u0301"])
def test_the_limit_is_exact_whatever_the_character(character: str) -> None:
    assert parse(input=character * 4096).characters == 4096
    assert refused(input=character * 4097) == (400, "input")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": None}, "input"),
        ({"input": ["a"]}, "input"),
        ({"voice": ""}, "voice"),
        ({"voice": {"id": "x"}}, "voice"),
        ({"response_format": "ogg"}, "response_format"),
        ({"response_format": ["wav"]}, "response_format"),
        ({"speed": 0.2}, "speed"),
        ({"speed": 4.1}, "speed"),
        ({"speed": True}, "speed"),
        ({"instructions": 3}, "instructions"),
        ({"model": "MinerU2.5-Pro"}, "model"),
        ({"model": "DeepSeek-V4-Flash"}, "model"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields) == (400, param)
