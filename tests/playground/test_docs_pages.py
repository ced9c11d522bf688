"""The documentation in both languages: whole, public, and true to catalog, errors, settings and rates."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.core.management import call_command
from django.test import AsyncClient

from gateway.catalog import load
from gateway.runtime import Runtime
from playground.docs_views import PAGES
from tests.playground.conftest import Serve

CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.fixture
def rates(transactional_db: None) -> None:
    call_command("load_rates", verbosity=0)


async def read(path: str, **headers: str) -> str:
    answer = await AsyncClient().get(path, headers=headers)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def text_of(html: str) -> str:
    article = html.partition('<article class="docs-text">')[2].partition("</article>")[0]
    return re.sub(r"<(pre|code)[^>]*>.*?</\1>|<[^>]+>", " ", article, flags=re.DOTALL)


def test_every_page_is_there_in_both_languages_with_the_same_parts(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        index = await read("/docs/")
        for page in PAGES:
            assert f'href="/docs/{page.slug}/"' in index
            english = await read(f"/docs/{page.slug}/", **{"accept-language": "en"})
            chinese = await read(f"/docs/{page.slug}/", **{"accept-language": "zh-hans"})
            for mark in ("<h2", "<li", "<tr", "<pre", "tabpanel"):
                assert english.count(mark) == chinese.count(mark), (page.slug, mark)
            assert not CHINESE.search(text_of(english))
            # What is left in English are names and codes.
            paragraphs = re.findall(
                r"<(?:p|li|h2)[^>]*>(.+?)</(?:p|li|h2)>", chinese.partition("<article")[2], re.DOTALL
            )
            plain = [re.sub(r"<code>.*?</code>|<[^>]+>", "", one).strip() for one in paragraphs]
            assert [one for one in plain if len(one) > 12 and not CHINESE.search(one)] == []

    serve(scenario)


def test_tables_are_those_the_gateway_goes_by(serve: Serve, rates: None, settings: Any) -> None:
    settings.RATE_LIMIT_KEY_RPM, settings.RATE_LIMIT_TEAM_RPM = 77, 0

    async def scenario(running: Runtime) -> None:
        thinking = await read("/docs/thinking/")
        for model in load().chat_models():
            assert f'href="/models/{model.id}"' in thinking
        limits = re.sub(r"<[^>]+>", " ", await read("/docs/limits/"))
        assert re.search(r"Requests a minute per key\s+77\s+token_rate_limit_exceeded", limits)
        assert re.search(r"Requests a minute per team\s+not set\s+rate_limit_exceeded", limits)
        assert re.search(r"on the whole site\s+not set\s+global_concurrency_rate_limit_exceeded", limits)
        billing = re.sub(r"<[^>]+>", " ", await read("/docs/billing/"))
        assert re.search(r"Qwen3\.8-27B\s+0\.035\s+0\.0007\s+0\.07\s+–\s+–", billing)
        errors = re.sub(r"<[^>]+>", " ", await read("/docs/errors/"))
        for status, code in ((401, "invalid_api_key"), (413, "request_too_large"), (502, "upstream_unavailable")):
            assert re.search(rf"{status}\s.+{code}", errors)

    serve(scenario)


def test_ids_of_examples_are_each_there_once(serve: Serve, rates: None) -> None:
    async def scenario(running: Runtime) -> None:
        for page in PAGES:
            ids = re.findall(r' id="([^"]+)"', await read(f"/docs/{page.slug}/"))
            assert len(ids) == len(set(ids)), page.slug

    serve(scenario)


def test_an_unknown_page_is_a_404(serve: Serve) -> None:
    async def scenario(running: Runtime) -> None:
        assert (await AsyncClient().get("/docs/nothing/")).status_code == 404

    serve(scenario)
