"""An answer while it comes: reloads, tabs, a lost network, a server that goes down, and the reader's own hands."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS
from tests.installation import Installation, WebProcess
from tests.services import wait_until

ANSWER = ".turn-answer > .answer"
SLOWLY = "[[tokens=300]] [[pace=0.02]]"
# It will not be waited for: something ends it.
ENDLESS = "[[tokens=3000]] [[pace=0.05]]"
# What the browser itself says of a connection that broke.
BROKEN = ["net::ERR_", "Failed to load resource", "htmx:", "[object Event]"]


@pytest.fixture
def page(open_page: Open) -> Page:
    return opened(open_page)


def opened(open_page: Open, path: str = "/playground/", **options: object) -> Page:
    page = open_page(path, owner=True, **options)
    page.set_default_timeout(PATIENCE_MS)
    return page


def ask(page: Page, text: str) -> None:
    page.fill("#id_message", text)
    page.press("#id_message", "Enter")
    expect(page.locator("[data-streaming]")).to_have_count(1, timeout=PATIENCE_MS)


def begun(page: Page) -> None:
    page.locator(f"{ANSWER} .blocks > *").first.wait_for()


def ended(page: Page) -> None:
    expect(page.locator("[data-streaming]")).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.locator(".turn-answer .turn-line").last).to_be_visible(timeout=PATIENCE_MS)


def test_finished_blocks_stay_and_a_reload_shows_what_has_come_and_goes_on(page: Page) -> None:
    ask(page, f"Explain currents with code and a table. {SLOWLY}")
    begun(page)
    page.evaluate(f"window.firstBlock = document.querySelector('{ANSWER} .blocks > *')")
    page.locator(f"{ANSWER} .blocks > :nth-child(4)").wait_for()
    assert page.evaluate("window.firstBlock.isConnected")
    page.reload()
    begun(page)
    ended(page)
    live = page.inner_html(f"{ANSWER} .blocks").strip()
    page.reload()
    assert page.inner_html(f"{ANSWER} .blocks").strip() == live
    assert page.locator(".turn-answer").count() == 1


def test_escape_stops_and_another_tab_sees_it(page: Page) -> None:
    ask(page, f"Explain waves with code and a table. {ENDLESS}")
    other = page.context.new_page()
    other.goto(page.url)
    begun(other)
    page.press("#id_message", "Escape")
    ended(page)
    ended(other)
    expect(other.locator(".turn-note")).to_have_text("You stopped this answer.")
    expect(page.locator("[data-send]")).to_be_visible()


def test_a_lost_network_loses_nothing(open_page: Open, demo_installation: Installation) -> None:
    page = opened(open_page, expected=BROKEN)
    ask(page, f"Explain storms with code and a table. {SLOWLY}")
    begun(page)
    page.context.set_offline(True)
    page.fill("#id_message", "typed without a network")
    page.context.set_offline(False)
    ended(page)
    shown = page.inner_html(f"{ANSWER} .blocks").strip()
    page.reload()
    assert page.inner_html(f"{ANSWER} .blocks").strip() == shown
    sql = "select count(*) from playground_turn where content like '%Explain storms%' and role = 'assistant'"
    assert demo_installation.query(sql) == [[1]]

    # What cannot be sent stays in the box.
    expect(page.locator("#id_message")).to_have_value("typed without a network")
    page.context.set_offline(True)
    page.press("#id_message", "Enter")
    expect(page.locator(".toast-error")).to_be_visible()
    expect(page.locator("#id_message")).to_have_value("typed without a network")
    page.context.set_offline(False)
    page.press("#id_message", "Enter")
    expect(page.locator(".turn-answer")).to_have_count(2, timeout=PATIENCE_MS)
    ended(page)


@pytest.fixture
def other_server(demo_installation: Installation) -> Iterator[WebProcess]:
    web = demo_installation.start_web(environment={"DRAIN_SECONDS": "1"})
    yield web
    web.process.kill()
    web.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_server_that_goes_down_leaves_what_had_come_and_says_so(
    open_page: Open, demo_installation: Installation, other_server: WebProcess, number: signal.Signals
) -> None:
    page = opened(open_page, url=other_server.url, expected=BROKEN)
    ask(page, f"Explain volcanoes with code and a table. {ENDLESS}")
    begun(page)
    # What was saved is what a killed process leaves.
    sql = "select content from playground_turn where state = 'streaming' order by id desc limit 1"
    wait_until(lambda: len(demo_installation.query(sql)[0][0]) > 20, what="a part of the answer saved")
    other_server.process.send_signal(number)
    other_server.process.wait(30)
    again = demo_installation.start_web(port=other_server.port)
    try:
        # Without a reload: the stream is opened again, and generates nothing.
        ended(page)
        expect(page.locator(".turn-problem")).to_contain_text("The server stopped before the answer was complete.")
        expect(page.locator(f"{ANSWER} .blocks")).to_contain_text("volcanoes")
        page.click(".turn-problem [data-asks]")
        expect(page.locator("[data-streaming]")).to_have_count(1)
        page.press("#id_message", "Escape")
        ended(page)
        expect(page.locator(".turn-answer .turn-pager-count")).to_have_text("2/2")
    finally:
        again.process.kill()
        again.process.wait()


def test_thinking_folds_and_names_its_time(open_page: Open) -> None:
    page = opened(open_page, "/playground/?model=GLM-5.3-Flash")
    ask(page, "Explain dunes. [[thinking=60]] [[tokens=60]] [[pace=0.02]]")
    thinking = page.locator(".thinking")
    expect(thinking).to_be_visible()
    expect(thinking).not_to_have_attribute("open", "")
    thinking.locator("summary").click()
    expect(thinking.locator(".thinking-text")).to_be_visible()
    ended(page)
    expect(thinking.locator("summary")).to_have_text(re.compile(r"Thought for \d+(\.\d)? s"))


def test_a_draft_survives_a_reload_and_a_composition_sends_nothing(page: Page) -> None:
    page.type("#id_message", "first")
    page.press("#id_message", "Shift+Enter")
    page.type("#id_message", "second")
    page.evaluate(
        """document.getElementById("id_message").dispatchEvent(
             new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true}))"""
    )
    page.reload()
    expect(page.locator("#id_message")).to_have_value("first\nsecond")
    assert page.locator(".turn").count() == 0


def test_reading_above_and_typing_go_on_while_an_answer_comes(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 420})
    ask(page, f"Explain glaciers with code and a table. {SLOWLY}")
    page.locator(f"{ANSWER} .code").wait_for()
    page.evaluate("document.getElementById('chat-scroll').scrollTo(0, 0)")
    page.fill("#id_message", "the next question")
    page.press("#id_message", "Enter")
    ended(page)
    assert page.evaluate("document.getElementById('chat-scroll').scrollTop") == 0
    expect(page.locator("#id_message")).to_have_value("the next question")
    assert page.locator(".turn-user").count() == 1


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    for path in ("/", "/models/", "/models/Qwen3.8-27B", "/playground/", "/playground/compare/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == width
