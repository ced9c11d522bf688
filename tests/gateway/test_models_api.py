"""`/v1/models`: what is served now, with what it costs now."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.fake_upstream.replies import MODEL
from tests.gateway.gateway_process import DEAD, ENGINE, IMAGES, RENAMED, REPLICATED, GatewayProcess


@pytest.mark.parametrize("path", ["/v1/models", "/api/v1/models"])
def test_the_list_is_what_is_configured_or_found_in_the_catalogs_order(gateway: GatewayProcess, path: str) -> None:
    document = gateway.http.get(path).json()
    assert document["object"] == "list"
    assert [model["id"] for model in document["data"]] == [
        MODEL, IMAGES, RENAMED, ENGINE, DEAD, REPLICATED, "MinerU2.5-Pro", "OmniVoice", "d3",
        "Qwen/Qwen3-30B-A3B-FP8", "mystery-model",
    ]  # fmt: skip


def test_a_models_card(gateway: GatewayProcess) -> None:
    card = gateway.http.get(f"/v1/models/{MODEL}").json()
    assert card == next(model for model in gateway.http.get("/v1/models").json()["data"] if model["id"] == MODEL)
    assert card.pop("description")
    assert card.pop("created") > 1_790_000_000
    assert card == {
        "id": MODEL, "object": "model", "owned_by": card["owned_by"], "name": "DeepSeek-V4-Flash",
        "family": "DeepSeek",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"], "tokenizer": "GPT"},
        "context_length": 1_048_576,
        "supported_parameters": [
            "temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty", "stream", "stream_options",
            "response_format", "tools", "tool_choice", "parallel_tool_calls", "reasoning_effort",
            "chat_template_kwargs",
        ],
        "json_output": True, "structured_outputs": True,
        "pricing": {"prompt": "0.00000014", "completion": "0.00000028", "input_cache_read": "0.0000000028"},
        "reasoning": {
            "efforts": ["none", "minimal", "low", "medium", "high", "xhigh", "max"], "default_on": False,
        },
        "stability": "experimental", "endpoint": "/v1/chat/completions",
    }  # fmt: skip


def test_a_model_id_with_a_slash_is_found(gateway: GatewayProcess) -> None:
    for path in ("/v1/models/Qwen/Qwen3-30B-A3B-FP8", "/v1/models/Qwen%2FQwen3-30B-A3B-FP8"):
        card = gateway.http.get(path).json()
        assert card["id"] == "Qwen/Qwen3-30B-A3B-FP8"
        assert card["supported_parameters"][-3:] == ["stop", "n", "user"]


def test_pages_are_priced_by_the_page(gateway: GatewayProcess) -> None:
    card = gateway.http.get("/v1/models/MinerU2.5-Pro").json()
    assert (list(card["pricing"]), card["endpoint"], card["reasoning"]) == (["ocr_page"], "/v1/ocr", None)


def test_a_model_that_no_card_describes_is_listed_with_what_is_known(gateway: GatewayProcess) -> None:
    card = gateway.http.get("/v1/models/mystery-model").json()
    assert (card["pricing"], card["context_length"], card["stability"]) == ({}, None, "unknown")


@pytest.mark.parametrize("model", ["nope", "Clef", "qwen-inside", "x" * 5000])
def test_what_is_not_served_does_not_exist(gateway: GatewayProcess, model: str) -> None:
    response = gateway.http.get(f"/v1/models/{model}")
    assert response.status_code == 404
    assert response.json()["error"] == {
        "message": f"The model {model[:200]} does not exist", "type": "invalid_request_error", "param": "model",
        "code": "not_found",
    }  # fmt: skip


def test_the_list_is_for_those_with_a_key(gateway: GatewayProcess) -> None:
    assert httpx.get(f"{gateway.url}/v1/models").status_code == 401


def test_the_official_client_reads_the_list(gateway: GatewayProcess) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.secret) as client:
        assert MODEL in [model.id for model in client.models.list()]
        assert client.models.retrieve(ENGINE).id == ENGINE
