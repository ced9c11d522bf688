"""The accepted request of `/v1/audio/speech`, checked and rebuilt. Its characters are Unicode code points."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.catalog import Endpoint
from gateway.fields import FindModel, Json, number, one_of, rebuild, refusal, served_model, text

MAX_CHARACTERS = 4_096
CONTENT_TYPES = {
    "wav": b"audio/wav",
    "mp3": b"audio/mpeg",
    "opus": b"audio/ogg",
    "aac": b"audio/aac",
    "flac": b"audio/flac",
    "pcm": b"audio/pcm",
}


@dataclass(slots=True)
class SpeechRequest:
    """`body` goes on to the backend, its `model` still the public id."""

    model: str
    body: Json
    dropped: list[str] = field(default_factory=list)

    @property
    def characters(self) -> int:
        return len(self.body["input"])

    @property
    def content_type(self) -> bytes:
        """Of the format asked for; what the backend says goes before it."""
        return CONTENT_TYPES[self.body.get("response_format", "wav")]


def parse_speech_request(document: Json, *, find_model: FindModel) -> SpeechRequest:
    body, dropped = rebuild(document, checks=FIELDS, required=("model", "input"))
    model = served_model(body["model"], endpoint=Endpoint.SPEECH, find_model=find_model)
    limit = model.max_characters or MAX_CHARACTERS
    if not 1 <= len(body["input"]) <= limit:
        raise refusal("input", f"1 to {limit:,} characters, not {len(body['input']):,}")
    return SpeechRequest(body["model"], body, dropped)


def _voice(value: Any, param: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= 200:
        raise refusal(param, "a voice's name")


FIELDS = {
    "model": text,
    "input": text,
    "voice": _voice,
    "response_format": one_of(*CONTENT_TYPES),
    "speed": number(0.25, 4),
    "instructions": text,
}
