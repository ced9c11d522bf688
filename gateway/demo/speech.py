"""`POST /v1/audio/speech`: a text as a tune, a note a letter, so that its length fits the text.

Nobody would take it for a voice, but everybody hears whether it arrived whole. 16-bit mono at 24 kHz.
"""

import array
import math
import struct
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gateway.catalog import Model
from gateway.demo.hooks import Hooks, read
from gateway.demo.refusal import BadRequest, UnreadableBody

type Json = dict[str, Any]

SAMPLES_PER_SECOND = 24_000
BYTES_PER_SAMPLE = 2
LOUDNESS = 0.25
FADE_SECONDS = 0.008  # a note that starts or ends abruptly clicks
MAX_CHARACTERS = 4_096
CONTENT_TYPES = {"wav": b"audio/wav", "pcm": b"audio/pcm"}
# Two octaves of a pentatonic scale, in semitones: whatever the text, it sounds bearable.
SCALE = (0, 2, 4, 7, 9, 12, 14, 16, 19, 21)
LETTER_SECONDS = 0.06
IDEOGRAM_SECONDS = 0.18  # a syllable of its own
SPACE_SECONDS = 0.05
PAUSE_SECONDS = 0.2
SHORTEST_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    text: str
    voice: str
    format: str
    speed: float
    wishes: Hooks

    @property
    def content_type(self) -> bytes:
        return CONTENT_TYPES[self.format]


def read_request(body: Json, *, model: Model) -> SpeechRequest:
    text = body.get("input")
    if not isinstance(text, str):
        raise UnreadableBody("missing field `input`")
    limit = model.max_characters or MAX_CHARACTERS
    if not 1 <= len(text) <= limit:
        raise BadRequest(f"input must have 1 to {limit} characters, got {len(text)}.", param="input")
    format = str(body.get("response_format") or "wav")
    if format not in CONTENT_TYPES:
        raise BadRequest(f"This backend makes wav and pcm only, not {format}.", param="response_format")
    speed = 1.0 if body.get("speed") is None else body["speed"]
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0.25 <= speed <= 4:
        raise BadRequest("speed must be from 0.25 to 4.", param="speed")
    return SpeechRequest(text, str(body.get("voice") or "default"), format, float(speed), read(text))


def audio(request: SpeechRequest) -> Iterator[bytes]:
    """The file piece by piece, a note or a pause each; its header says the whole length beforehand."""
    sounds = [*_sounds(request)]
    if request.format == "wav":
        yield _wav_header(sum(samples for _, samples in sounds) * BYTES_PER_SAMPLE)
    key = 220.0 * 2 ** (sum(request.voice.encode()) % 12 / 12)
    for step, samples in sounds:
        yield bytes(samples * BYTES_PER_SAMPLE) if step is None else _note(key, step, samples)


def _sounds(request: SpeechRequest) -> Iterator[tuple[int | None, int]]:
    """For each character its step of the scale (None: silence) and its length in samples."""
    total = 0
    for character in request.text:
        step, seconds = _sound(character)
        samples = round(seconds / request.speed * SAMPLES_PER_SECOND)
        total += samples
        if samples:
            yield step, samples
    missing = round(SHORTEST_SECONDS * SAMPLES_PER_SECOND) - total
    if missing > 0:
        yield None, missing


def _sound(character: str) -> tuple[int | None, float]:
    kind = unicodedata.category(character)
    if kind[0] == "M" or kind == "Cf":
        return None, 0.0  # an accent or a joiner is no sound of its own
    if kind[0] in "LN":
        seconds = IDEOGRAM_SECONDS if kind == "Lo" else LETTER_SECONDS
        return ord(character.lower()[0]) % len(SCALE), seconds
    return None, SPACE_SECONDS if character == " " else PAUSE_SECONDS


@lru_cache(maxsize=512)
def _note(key: float, step: int, samples: int) -> bytes:
    turn = 2 * math.pi * key * 2 ** (SCALE[step] / 12) / SAMPLES_PER_SECOND
    fade = max(1, min(samples // 2, round(FADE_SECONDS * SAMPLES_PER_SECOND)))
    wave = array.array("h")
    for at in range(samples):
        envelope = min(1.0, at / fade, (samples - at) / fade)
        tone = math.sin(turn * at) + 0.3 * math.sin(2 * turn * at) + 0.1 * math.sin(3 * turn * at)
        wave.append(round(32_767 * LOUDNESS / 1.4 * envelope * tone))
    if sys.byteorder == "big":
        wave.byteswap()
    return wave.tobytes()


def _wav_header(data_bytes: int) -> bytes:
    rate = SAMPLES_PER_SECOND * BYTES_PER_SAMPLE
    form = struct.pack("<IHHIIHH", 16, 1, 1, SAMPLES_PER_SECOND, rate, BYTES_PER_SAMPLE, 8 * BYTES_PER_SAMPLE)
    return b"RIFF" + struct.pack("<I", 36 + data_bytes) + b"WAVEfmt " + form + b"data" + struct.pack("<I", data_bytes)
