"""The usage object, in the shape the model's own backend gives it."""

from dataclasses import dataclass
from typing import Any

from gateway.catalog import ImageTokens, Model, ReasoningTokens


@dataclass(slots=True)
class Tally:
    """What one request has used so far."""

    prompt_tokens: int
    cached_tokens: int
    image_tokens: int
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    def add(self, *, thinking: bool) -> None:
        self.completion_tokens += 1
        self.reasoning_tokens += thinking


def usage_object(model: Model, tally: Tally) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": tally.prompt_tokens,
        "completion_tokens": tally.completion_tokens,
        "total_tokens": tally.prompt_tokens + tally.completion_tokens,
    }
    if details := _prompt_details(model, tally):
        usage["prompt_tokens_details"] = details
    shape = model.usage
    if shape.reasoning_tokens is not ReasoningTokens.ABSENT:
        hidden = shape.reasoning_tokens is ReasoningTokens.ZERO
        usage["completion_tokens_details"] = {"reasoning_tokens": 0 if hidden else tally.reasoning_tokens}
    if shape.top_level_reasoning_tokens:
        usage["reasoning_tokens"] = tally.reasoning_tokens
    return usage


def _prompt_details(model: Model, tally: Tally) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if tally.cached_tokens:
        details["cached_tokens"] = tally.cached_tokens
    if not tally.image_tokens:
        return details
    match model.usage.image_tokens:
        case ImageTokens.IMAGE_TOKENS:
            details["image_tokens"] = tally.image_tokens
        case ImageTokens.MULTIMODAL:
            details["multimodal_tokens"] = {"image": tally.image_tokens}
        case ImageTokens.UNVERIFIED:
            pass  # counted in prompt_tokens, reported nowhere
    return details
