"""An answer while it comes: reloads, tabs, a lost network, a server that goes down, and the reader's own hands."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS, Keyboard, expect_accessible, expect_answered
from tests.browser.windows import Window, in_each_of, open_both
from tests.installation import Installation, WebProcess
from tests.services import wait_until

ANSWER = ".turn-answer > .answer"
SLOWLY = "[[tokens=300]] [[pace=0.02]]"
# It will not be waited for: something ends it.
ENDLESS = "[[tokens=3000]] [[pace=0.05]]"
SAVED = "select count(*) from playground_turn where state = 'streaming' and content like '%olcanoes%'"
# What the browser itself says of a connection that broke.
BROKEN = ["net::ERR_", "Failed to load resource", "htmx:", "[object Event]"]


def ask(keys: Keyboard, text: str) -> None:
    keys.press("Shift+Escape")
    keys.type(text)
    keys.press("Enter")
    expect(keys.page.locator("[data-streaming]")).to_have_count(1, timeout=PATIENCE_MS)


def begun(page: Page, *, answers: int = 1) -> None:
    expect(page.locator(".turn-answer")).to_have_count(answers, timeout=PATIENCE_MS)
    page.locator(ANSWER).last.locator(".blocks > *").first.wait_for(state="attached", timeout=PATIENCE_MS)


def shown(page: Page) -> str:
    return page.locator(ANSWER).last.locator(".blocks").inner_html().strip()


def returned_to(page: Page) -> None:
    """What a browser says to a page whose window one comes back to."""
    page.evaluate("window.dispatchEvent(new Event('focus'))")


def answers_to(demo_installation: Installation, words: str) -> int:
    sql = f"select count(*) from playground_turn where content like '%{words}%' and role = 'assistant'"
    return int(demo_installation.query(sql)[0][0])


def test_tabs_and_devices_follow_one_answer_through_reloads_to_a_stop(
    open_page: Open, demo_installation: Installation
) -> None:
    desk, telephone = open_both(open_page, "/playground/", pair=0)
    ask(desk, f"Explain currents with code and a table. {SLOWLY}")
    telephone.page.goto(desk.page.url)
    begun(telephone.page)
    begun(desk.page)
    desk.page.evaluate(f"window.firstBlock = document.querySelector('{ANSWER} .blocks > *')")
    telephone.page.reload()
    desk.page.locator(f"{ANSWER} .blocks > :nth-child(4)").wait_for(state="attached")
    # A finished block is not made again.
    assert desk.page.evaluate("window.firstBlock.isConnected")
    expect_answered(telephone.page)
    expect_answered(desk.page)
    live = shown(desk.page)
    desk.page.reload()
    assert shown(desk.page) == live
    assert desk.page.locator(".turn-answer").count() == 1
    assert answers_to(demo_installation, "Explain currents") == 1
    expect_accessible(desk.page)
    expect_accessible(telephone.page)

    # The next question comes to the other tab at once, to the other device when one returns to it.
    tab = telephone.page.context.new_page()
    tab.goto(telephone.page.url)
    ask(telephone, f"And waves? With code. {ENDLESS}")
    begun(tab, answers=2)
    returned_to(desk.page)
    begun(desk.page, answers=2)
    # Anyone of them stops it for all.
    desk.press("Shift+Escape", "Escape")
    for page, note in ((desk.page, "You stopped this answer."), (telephone.page, "您停止了此回答。"), (tab, None)):
        expect_answered(page)
        expect(page.locator(".turn-note")).to_have_text(note or re.compile("."))
        expect(page.locator("[data-send]")).to_be_visible()
    assert answers_to(demo_installation, "And waves") == 1


def test_a_lost_network_loses_nothing(open_page: Open, demo_installation: Installation) -> None:
    walkers = open_both(open_page, "/playground/", pair=1, expected=BROKEN)
    for number, keys in enumerate(walkers):
        ask(keys, f"Explain storms{number} with code and a table. {SLOWLY}")
    for keys in walkers:
        begun(keys.page)
        keys.page.context.set_offline(True)
        keys.type("typed without a network [[tokens=20]]")
    for number, keys in enumerate(walkers):
        keys.page.context.set_offline(False)
        expect_answered(keys.page)
        live = shown(keys.page)
        keys.page.reload()
        assert shown(keys.page) == live
        assert answers_to(demo_installation, f"Explain storms{number}") == 1

    # What cannot be sent stays in the box.
    for keys in walkers:
        message = keys.page.locator("#id_message")
        expect(message).to_have_value("typed without a network [[tokens=20]]")
        keys.page.context.set_offline(True)
        keys.press("Shift+Escape", "Enter")
        expect(keys.page.locator(".toast-error")).to_be_visible()
        expect(message).to_have_value("typed without a network [[tokens=20]]")
        expect_accessible(keys.page)
        keys.page.context.set_offline(False)
        keys.press("Shift+Escape", "Enter")
        begun(keys.page, answers=2)
        expect_answered(keys.page)
        expect(message).to_have_value("")


@pytest.fixture
def servers(demo_installation: Installation) -> Iterator[list[WebProcess]]:
    """The last of them is the one that runs."""
    started = [demo_installation.start_web(environment={"DRAIN_SECONDS": "1"})]
    yield started
    started[-1].process.kill()
    started[-1].process.wait()


def test_a_server_that_goes_down_leaves_what_had_come_and_says_so(
    open_page: Open, demo_installation: Installation, servers: list[WebProcess]
) -> None:
    walkers = open_both(open_page, "/playground/", pair=2, url=servers[0].url, expected=BROKEN)
    for keys in walkers:
        ask(keys, f"Explain volcanoes with code and a table. {ENDLESS}")
    for number in (signal.SIGTERM, signal.SIGKILL):
        for keys in walkers:
            begun(keys.page)
        # What was saved is what a killed process leaves.
        wait_until(lambda: demo_installation.query(SAVED) == [[2]], what="a part of both answers saved")
        servers[-1].process.send_signal(number)
        servers[-1].process.wait(30)
        servers.append(demo_installation.start_web(port=servers[-1].port, environment={"DRAIN_SECONDS": "1"}))
        for keys, says in zip(walkers, ("The server stopped before the answer was complete.", "服务器"), strict=True):
            # Without a reload: the stream is opened again, and generates nothing.
            expect_answered(keys.page)
            expect(keys.page.locator(".turn-problem")).to_contain_text(says)
            expect(keys.page.locator(f"{ANSWER} .blocks")).to_contain_text("olcanoes")
            expect_accessible(keys.page)
            keys.use(".turn-problem [data-asks]")
            expect(keys.page.locator("[data-streaming]")).to_have_count(1)
    for keys in walkers:
        begun(keys.page)
        keys.press("Shift+Escape", "Escape")
        expect_answered(keys.page)
        expect(keys.page.locator(".turn-answer .turn-pager-count")).to_have_text("3/3")


@in_each_of(3)
def test_thinking_folds_and_names_its_time(open_page: Open, window: Window) -> None:
    keys = Keyboard(open_page("/playground/?model=GLM-5.3-Flash", owner=True, **window))
    ask(keys, "Explain dunes. [[thinking=60]] [[tokens=60]] [[pace=0.02]]")
    thinking = keys.page.locator(".thinking")
    expect(thinking).to_be_visible()
    expect(thinking).not_to_have_attribute("open", "")
    keys.use(".thinking summary")
    expect(thinking.locator(".thinking-text")).to_be_visible()
    expect_answered(keys.page)
    expect(thinking.locator("summary")).to_have_text(re.compile(r"\d+(\.\d)? (s|秒)"))
    expect_accessible(keys.page)


@in_each_of(1)
def test_reading_above_and_typing_go_on_while_an_answer_comes(open_page: Open, window: Window) -> None:
    keys = Keyboard(open_page("/playground/", owner=True, **window | {"height": 420}))
    page = keys.page
    ask(keys, f"Explain glaciers with code and a table. {SLOWLY}")
    page.locator(f"{ANSWER} .code").wait_for()
    page.evaluate("document.getElementById('chat-scroll').scrollTo(0, 0)")
    keys.type("the next question")
    keys.press("Enter")
    expect_answered(page)
    assert page.evaluate("document.getElementById('chat-scroll').scrollTop") == 0
    expect(page.locator("#id_message")).to_have_value("the next question")
    assert page.locator(".turn-user").count() == 1


def test_nothing_is_wider_than_the_window(open_page: Open) -> None:
    page = open_page("/", owner=True)
    for path in ("/models/", "/models/Qwen3.8-27B", "/playground/", "/playground/compare/", "/"):
        page.goto(path)
        for width in (360, 768, 1440):
            page.set_viewport_size({"width": width, "height": 740})
            assert page.evaluate("document.documentElement.scrollWidth") == width, path
