"""How much of a chat's size is pictures: base64 says little of how many tokens a picture takes, and is no text.

A model sees a picture in pieces of some hundreds of pixels, and scales down what is too large. So a picture is taken
for a token in 200 characters of its base64, within the limits of what such models make of small and large ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

# As where prompts are taken for so many bytes a token.
BYTES_PER_TOKEN = 4
BASE64_PER_TOKEN = 200
LEAST_TOKENS, MOST_TOKENS = 256, 16_384
# One that is fetched by the backend, and of a size that nobody here knows.
REMOTE_TOKENS = 2_048


def picture_tokens(url: str) -> int:
    """A guess, rather too high than too low."""
    if not url.startswith("data:"):
        return REMOTE_TOKENS
    return min(MOST_TOKENS, max(LEAST_TOKENS, len(url) // BASE64_PER_TOKEN))


def picture_excess_bytes(messages: Iterable[Any]) -> int:
    """By how much a request is larger than its text and its pictures' tokens come to; below 0 for remote pictures."""
    excess = 0
    for message in messages:
        if isinstance(content := message.get("content"), list):
            excess += sum(len(url) - picture_tokens(url) * BYTES_PER_TOKEN for url in _urls(content))
    return excess


def _urls(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        if part.get("type") == "image_url":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, dict) else image
            if isinstance(url, str):
                yield url
