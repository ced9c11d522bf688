"""Home and model pages: open to everybody, true to the catalog and the rate card."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.core.management import call_command
from django.test import AsyncClient

from gateway.catalog import load
from gateway.runtime import Runtime
from tests.playground.conftest import Serve


@pytest.fixture
def rates(transactional_db: None) -> None:
    call_command("load_rates", verbosity=0)


def facts(html: str) -> dict[str, str]:
    text = re.sub(r"\s+", " ", html)
    pairs = re.findall(r"<dt>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", text)
    return {re.sub(r"<[^>]+>", "", name): re.sub(r"<[^>]+>", "", value).strip() for name, value in pairs}


def test_every_model_of_the_catalog_has_a_page(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        client = AsyncClient()
        listed = (await client.get("/models/")).content.decode()
        for model in load().values():
            assert f'href="/models/{model.id}"' in listed
            response = await client.get(f"/models/{model.id}")
            assert response.status_code == 200
            assert model.endpoint_path in response.content.decode()

    serve(scenario)


def test_a_page_shows_tiers_rules_and_rates(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        html = (await AsyncClient().get("/models/Qwen3.8-27B")).content.decode()
        shown = facts(html)
        assert "in force since 2026-10-19 00:00 UTC" in html
        assert (shown["Input"], shown["Output"], shown["Tokenizer"]) == ("text, images", "text", "GPT")
        assert shown["usage.reasoning_tokens"] == "Not reported at the top level"
        assert shown["Context"] == "262,144 tokens"
        assert shown["Effort"] == "low medium xhigh default"
        assert shown["System message"] == "At most one, and it must come first"
        assert shown["Image usage"] == "usage.prompt_tokens_details.multimodal_tokens.image"
        assert (shown["Input tokens"], shown["Cache-read tokens"], shown["Output tokens"]) == (
            "0.035",
            "0.0007",
            "0.07",
        )

    serve(scenario)


def test_what_a_model_takes_is_said_in_the_readers_language(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        client, chinese = AsyncClient(), {"accept-language": "zh-hans"}
        decider = facts((await client.get("/models/Clef", headers=chinese)).content.decode())
        assert (decider["输入"], decider["输出"], decider["图片上限"]) == ("文本, 图片", "概率", "4")
        assert "PDF, 图片" in (await client.get("/models/", headers=chinese)).content.decode()

    serve(scenario)


def test_pages_and_characters_are_priced_in_their_own_unit(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        client = AsyncClient()
        ocr = (await client.get("/models/MinerU2.5-Pro")).content.decode()
        assert facts(ocr)["Pages"] == "0.001"
        assert "points per page" in ocr
        assert "points per million characters" in (await client.get("/models/OmniVoice")).content.decode()

    serve(scenario)


def test_an_unknown_model_is_a_404(serve: Serve) -> None:
    async def scenario(running: Runtime) -> None:
        assert (await AsyncClient().get("/models/nothing/at-all")).status_code == 404

    serve(scenario)


def test_home_says_what_this_is_and_shows_the_call(serve: Serve) -> None:
    async def scenario(running: Runtime) -> None:
        html = (await AsyncClient().get("/")).content.decode()
        assert "/accounts/login/?next=/playground/" in html
        assert "/v1/chat/completions" in html
        assert "TOKEN_FACTORY_KEY" in html

    serve(scenario)


def test_every_model_that_is_served_is_tried_on_its_own_page(serve: Serve, rates: None) -> None:
    pages = {"ocr": "ocr/", "speech": "speech/", "systemone": "decisions/", "chat": ""}

    async def scenario(running: Runtime) -> None:
        for model_id in ("MinerU2.5-Pro", "OmniVoice", "Clef", "Qwen3.8-27B"):
            shown = (await AsyncClient().get(f"/models/{model_id}")).content.decode()
            assert f'href="/playground/{pages[load()[model_id].endpoint]}?model={model_id}"' in shown

    serve(scenario)


def test_a_page_says_what_the_model_refuses_and_in_whose_words(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        client = AsyncClient()
        for model in load().chat_models():
            html = unescape((await client.get(f"/models/{model.id}")).content.decode())
            for refused in (
                model.thinking.rejection,
                model.messages.system_rejection,
                model.messages.developer_rejection,
            ):
                if refused:
                    text = refused.render(effort="extreme", index=0, role="developer")
                    assert f'<span class="badge">{refused.status}</span></dt><dd><code>{text}</code>' in html
            assert ("<code>stop</code>" in html.partition("x-dropped-params")[2]) is (
                "stop" not in model.extra_parameters
            )

    serve(scenario)


def test_a_page_says_who_serves_the_model_now(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        client = AsyncClient()
        (server,) = running.upstreams.all
        assert "1 of 1 server takes calls" in (await client.get("/models/Qwen3.8-27B")).content.decode()
        server.failed()
        resting = (await client.get("/models/Qwen3.8-27B")).content.decode()
        assert "0 of 1 server takes calls" in resting
        # Neither its name nor its address is everybody's to know.
        assert server.base_url not in resting
        server.served_as.pop("Qwen3.8-27B")
        running.upstreams._index()
        assert "No server of this site serves it" in (await client.get("/models/Qwen3.8-27B")).content.decode()

    serve(scenario)
