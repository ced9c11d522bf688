"""Pages of usage, requests, statements, models, docs and staff: axe, Tab and keys alone, in both languages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from playground.docs_views import PAGES as DOCS
from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS, Keyboard, complaints, go_through
from tests.installation import Installation

# The owner's team uses every model a little, some of it in each way that a request can be particular.
MAKE = """
import json
from datetime import timedelta
import django
django.setup()
from django.utils import timezone
from accounts.keys import issue_key
from accounts.models import User
from accounts.teams import personal_team
from tests.billing.factories import make_record, rate_all

owner = User.objects.get(email={email!r})
team, now = personal_team(user=owner), timezone.now()
name = "=cmd|' /C calc'!A0, \\"quoted\\" <b>📈</b> and a name that is far too long for any column of any table"
keys = [issue_key(team=team, created_by=owner, name=one).key.pk for one in (name, "nightly batch")]
models = ["DeepSeek-V4-Flash", "Qwen3.8-27B", "MinerU2.5-Pro", "OmniVoice"]
odd = [
    {{"outcome": "interrupted", "status": 0}},
    {{"outcome": "client_gone", "estimated": True}},
    {{"outcome": "stopped"}},
    {{"outcome": "error", "status": 502}},
    {{"model": "house-model"}},
    {{"source": "dedicated"}},
]

def make(number, **changes):
    at = now - timedelta(hours=5) * number
    fields = {{"model": models[number % 4], "pages": 3 * (number % 4 == 2), "characters": 99 * (number % 4 == 3)}}
    times = {{"started_at": at, "first_byte_at": at + timedelta(seconds=0.4), "finished_at": at + timedelta(seconds=3)}}
    who = {{"team_id": team.pk, "key_id": keys[number % 2], "member_id": owner.pk, "stream": True}}
    return make_record(**fields | times | who | changes)

made = [make(number, **one) for number, one in enumerate(odd + [{{}}] * 8)]
rate_all()
odd, plain = [str(one.id) for one in made[:6]], str(made[6].id)
print(json.dumps({{"odd": odd, "plain": plain, "key": keys[0], "month": f"{{now:%Y-%m}}"}}))
"""


@pytest.fixture(scope="module")
def used(demo_installation: Installation) -> dict[str, Any]:
    """Ids of requests, and of a key whose name is hostile."""
    made: dict[str, Any] = json.loads(demo_installation.run_python(MAKE.format(email=demo_installation.email)))
    return made


def pages(used: dict[str, Any]) -> list[str]:
    return [
        "/usage/?period=7",
        f"/usage/?period=1&group=key&tz=Asia/Kathmandu&source=api&key={used['key']}",
        "/usage/?start=2020-01-01&end=2020-01-02",
        "/usage/requests/",
        "/usage/requests/?status=unpriced&start=2026-01-01",
        "/usage/requests/?model=none",
        *(f"/usage/requests/{one}/" for one in (used["plain"], *used["odd"][:2])),
        "/usage/statements/",
        f"/usage/statements/{used['month']}/",
        "/models/",
        "/models/Qwen3.8-27B",
        "/models/MinerU2.5-Pro",
        "/docs/",
        *(f"/docs/{page.slug}/" for page in DOCS),
        "/staff/",
        "/staff/upstreams/",
    ]


@pytest.mark.parametrize(("width", "scheme", "language"), [(360, "dark", "zh-hans"), (1440, "light", "en")])
def test_axe_and_tab_find_nothing_wrong_on_any_page(
    width: int, scheme: str, language: str, open_page: Open, used: dict[str, Any], has_turn: Callable[[int, int], bool]
) -> None:
    page = open_page("/models/", width=width, scheme=scheme, language=language, owner=True)
    page.set_default_timeout(PATIENCE_MS)
    found = {}
    for number, path in enumerate(pages(used)):
        if not has_turn(number, width):
            continue
        page.goto(path)
        # A part that comes later.
        expect(page.locator(".skeleton")).to_have_count(0)
        assert page.locator("html").get_attribute("lang") == language
        found[path] = complaints(page)
        # The way of Tab is the same in both windows: half of the pages are gone through in each.
        if number % 2 == (width < 1000):
            found[path] += go_through(page)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_a_report_is_narrowed_down_to_one_request_without_a_mouse(open_page: Open, used: dict[str, Any]) -> None:
    page = open_page("/usage/", owner=True)
    keyboard = Keyboard(page)
    keyboard.go(".chart-hit")
    keyboard.press("End", "ArrowLeft", "ArrowRight")
    tip = page.locator("[data-chart-tip]")
    expect(tip).to_contain_text("Total")
    keyboard.press("Escape")
    expect(tip).to_be_hidden()
    keyboard.press("Enter")
    # The last bar is today, which is cut into hours.
    page.wait_for_url(re.compile(r"start=(\d{4}-\d\d-\d\d)&end=\1$"))
    expect(page.get_by_role("link", name="Hour", exact=True)).to_have_attribute("aria-current", "true")

    keyboard.use(".usage-more > summary")
    keyboard.choose("#filter-model", "DeepSeek-V4-Flash")
    page.wait_for_url(re.compile("model=DeepSeek-V4-Flash"))
    expect(page.locator(".usage-filters")).to_contain_text("DeepSeek-V4-Flash")
    page.go_back()
    expect(page.locator(".usage-filters")).to_have_count(0)

    page.goto("/usage/requests/")
    keyboard.go("input[name=q]")
    keyboard.type(used["odd"][1])
    keyboard.press("Enter")
    page.wait_for_url(f"**/usage/requests/{used['odd'][1]}/")
    expect(page.locator(".request-notes")).to_contain_text("estimated")
    expect(page.locator("tfoot")).to_contain_text(re.compile(r"0\.0000\d+"))


def test_a_model_is_tried_and_an_example_chosen_without_a_mouse(open_page: Open) -> None:
    page = open_page("/models/", owner=True)
    keyboard = Keyboard(page)
    keyboard.use("a[href='/models/Qwen3.8-27B']")
    keyboard.use("a[href^='/playground/?model=']")
    page.wait_for_url("**/playground/?model=Qwen3.8-27B")
    page.goto("/docs/quick-start/")
    keyboard.go("[role=tab][aria-selected=true]")
    keyboard.press("ArrowRight")
    chosen = page.locator("[role=tab]:focus")
    expect(chosen).to_have_attribute("aria-selected", "true")
    expect(chosen).to_have_text("Python · openai")
    expect(page.locator(f"#{chosen.get_attribute('aria-controls')}")).to_be_visible()
