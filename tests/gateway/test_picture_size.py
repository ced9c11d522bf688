"""Pictures set aside what pictures may cost, not what their base64 would cost as text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.picture_size import picture_excess_bytes, picture_tokens


def picture(url: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": url}}],
    }


@pytest.mark.parametrize(
    ("url", "tokens"),
    [
        ("data:image/png;base64,iVBORw0KGgo=", 256),
        ("data:" + "A" * 200_000, 1_000),
        ("data:" + "A" * 14_000_000, 16_384),
        ("https://example.com/harbour.jpg", 2_048),
    ],
)
def test_a_picture_is_as_many_tokens_as_one_of_its_size_may_be(url: str, tokens: int) -> None:
    assert picture_tokens(url) == tokens


def test_a_request_with_a_large_picture_is_no_longer_than_its_text_and_the_pictures_tokens() -> None:
    messages = [{"role": "system", "content": "Be brief."}, picture("data:" + "A" * 400_000)]
    size = len(json.dumps(messages)) - picture_excess_bytes(messages)
    assert 2_000 * 4 < size < 2_000 * 4 + 250
    assert picture_excess_bytes([picture("https://example.com/a.png")] * 2) == 2 * (
        len("https://example.com/a.png") - 8_192
    )


@pytest.mark.parametrize(
    "messages", [[], [{"role": "user", "content": "data:image/png;base64,AAAA"}], [{"role": "assistant"}]]
)
def test_text_stays_text(messages: list[dict[str, Any]]) -> None:
    assert picture_excess_bytes(messages) == 0
