"""`GET /v1/models` and `/v1/models/{id}`: the catalog's cards of what is served now, with the rates in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from billing.pricing import format_points
from billing.rates import RateCard
from gateway.catalog import Model, Switch
from gateway.database import in_database

# Names of the prices in `pricing`, by meter; points per unit as decimal strings.
PRICE_NAMES = {
    "input": "prompt",
    "output": "completion",
    "cache_read": "input_cache_read",
    "page": "ocr_page",
    "character": "character",
}


def model_object(model: Model, prices: Mapping[str, int]) -> dict[str, Any]:
    """OpenAI's model object and what the catalog adds. `prices` are picopoints per unit by meter."""
    return {
        "id": model.id,
        "object": "model",
        "created": model.created,
        "owned_by": model.owned_by,
        "name": model.name,
        "description": model.description,
        "family": model.family,
        "architecture": {
            "input_modalities": list(model.input_modalities),
            "output_modalities": list(model.output_modalities),
            "tokenizer": model.tokenizer,
        },
        "context_length": model.context_length,
        "supported_parameters": list(model.supported_parameters),
        "json_output": model.is_chat and model.json_output,
        "structured_outputs": model.is_chat and model.structured_outputs,
        "pricing": {name: format_points(prices[meter]) for meter, name in PRICE_NAMES.items() if meter in prices},
        "reasoning": _reasoning(model),
        "stability": model.stability,
        "endpoint": model.endpoint_path,
    }


def _reasoning(model: Model) -> dict[str, Any] | None:
    if not model.is_chat or model.thinking.switch is Switch.NONE:
        return None
    return {"efforts": list(model.efforts), "default_on": model.thinks_by_default}


async def rates_now() -> Callable[[str], Mapping[str, int]]:
    """Model id → picopoints per unit by meter, as of now."""
    card = await in_database(RateCard.load)
    now = datetime.now(UTC)
    return lambda model_id: card.prices(model_id, now)
