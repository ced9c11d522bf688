"""Counts out of whatever a backend calls usage: never an error, never a negative, never more cached than sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.pricing import MAX_TOKENS
from gateway.usage import TokenCounts, read_usage

NAMES = st.sampled_from(
    [
        "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "reasoning_tokens",
        "prompt_tokens_details", "completion_tokens_details", "cached_tokens", "image_tokens", "multimodal_tokens",
        "image", "prompt_cache_hit_tokens", "surprise",
    ]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.integers(0, 500), st.floats(0, 500)
)
ANY_JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=5)),
    max_leaves=8,
)


@given(usage=st.one_of(ANY_JSON, st.dictionaries(NAMES, ANY_JSON, max_size=10)))
def test_any_json_gives_plausible_counts(usage: Any) -> None:
    counts = read_usage(usage)
    fields = [counts.prompt, counts.cached, counts.completion, counts.reasoning, counts.image]
    assert all(type(field) is int and 0 <= field <= MAX_TOKENS for field in fields)
    assert counts.cached <= counts.prompt


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 24, "completion_tokens": 118, "total_tokens": 142}, TokenCounts(24, 0, 118)),
        # As DeepSeek-V4.1-Flash reports an image, and as Qwen3.8-27B did on its earlier deployment.
        ({"prompt_tokens": 210, "prompt_tokens_details": {"image_tokens": 202}}, TokenCounts(210, image=202)),
        (
            {"prompt_tokens": 80, "prompt_tokens_details": {"multimodal_tokens": {"image": 72}}},
            TokenCounts(80, image=72),
        ),
        (
            {"prompt_tokens": 80, "prompt_tokens_details": {"image_tokens": None, "multimodal_tokens": {"image": 72}}},
            TokenCounts(80, image=72),
        ),
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 40}}, TokenCounts(100, 40)),
        ({"prompt_tokens": 100, "prompt_cache_hit_tokens": 64}, TokenCounts(100, 64)),
        ({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 400}}, TokenCounts(100, 100)),
        ({"prompt_tokens": 5, "prompt_tokens_details": None, "completion_tokens_details": None}, TokenCounts(5)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"multimodal_tokens": None}}, TokenCounts(5)),
        (
            {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 6}},
            TokenCounts(completion=9, reasoning=6),
        ),
        ({"completion_tokens": 9, "reasoning_tokens": 6}, TokenCounts(completion=9, reasoning=6)),
        ({"prompt_tokens": None, "completion_tokens": 3, "total_tokens": 10}, TokenCounts(7, 0, 3)),
        ({"completion_tokens": 30, "total_tokens": 10}, TokenCounts(0, 0, 30)),
        ({"input_tokens": 12, "output_tokens": 34}, TokenCounts(12, 0, 34)),
        ({"prompt_tokens": 5.0, "completion_tokens": 2.5}, TokenCounts(5)),
        ({"prompt_tokens": True, "completion_tokens": "7"}, TokenCounts()),
        ({"prompt_tokens": -5, "completion_tokens": 10**9}, TokenCounts()),
        ({"prompt_tokens": float("inf"), "completion_tokens": float("nan")}, TokenCounts()),
        (None, TokenCounts()),
        ([], TokenCounts()),
        ("usage", TokenCounts()),
        ({}, TokenCounts()),
    ],
)
def test_each_shape_of_usage(usage: Any, counts: TokenCounts) -> None:
    assert read_usage(usage) == counts
