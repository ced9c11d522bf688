"""What a backend says a request used, read leniently: any object whatever gives counts, never an error."""

from __future__ import annotations

from typing import Any, NamedTuple

from billing.pricing import MAX_TOKENS


class TokenCounts(NamedTuple):
    """`cached` is part of `prompt`, `reasoning` is part of `completion`, `image` is part of `prompt`."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    image: int = 0


NOTHING_COUNTED = TokenCounts()


def count(value: Any) -> int:
    """A plausible token count, or 0: null, text, NaN, negative and absurd numbers are no counts."""
    kind = type(value)
    if kind is float and value.is_integer():
        value = int(value)
    elif kind is not int:
        return 0
    return value if 0 <= value <= MAX_TOKENS else 0


def read_usage(usage: Any) -> TokenCounts:
    """Counts from a chat completion's `usage`, in each of the shapes that backends use."""
    if not isinstance(usage, dict):
        return NOTHING_COUNTED
    field = usage.get
    prompt = count(field("prompt_tokens")) or count(field("input_tokens"))
    completion = count(field("completion_tokens")) or count(field("output_tokens"))
    if not prompt:
        prompt = max(0, count(field("total_tokens")) - completion)
    cached = image = reasoning = 0
    details = field("prompt_tokens_details")
    if isinstance(details, dict):
        cached = count(details.get("cached_tokens"))
        image = count(details.get("image_tokens")) or _multimodal_image(details)
    details = field("completion_tokens_details")
    if isinstance(details, dict):
        reasoning = count(details.get("reasoning_tokens"))
    cached = cached or count(field("prompt_cache_hit_tokens"))
    reasoning = reasoning or count(field("reasoning_tokens"))
    return TokenCounts(prompt, min(prompt, cached), completion, reasoning, image)


def _multimodal_image(details: dict[str, Any]) -> int:
    deeper = details.get("multimodal_tokens")
    return count(deeper.get("image")) if isinstance(deeper, dict) else 0
