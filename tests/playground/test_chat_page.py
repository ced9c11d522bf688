"""The chat in a browser, against a whole installation with the demo backend."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.installation import Installation, installation

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
ANSWER = ".turn-answer > .answer"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, str]]:
    with installation(tmp_path_factory.mktemp("chat"), ALLOWED_HOSTS="127.0.0.1") as made:
        made.environment["DEMO_URL"] = made.start_demo("--pace-seconds", "0.01")
        made.start_worker()
        yield made, made.start_web().url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright's loop runs in this thread; Django would take its own calls for asynchronous ones.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def session(browser: Browser, site: tuple[Installation, str]) -> str:
    """Cookies of the signed-in owner."""
    made, url = site
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/accounts/login/?next=/playground/")
    page.fill("input[name=login]", made.email)
    page.fill("input[name=password]", made.password)
    page.press("input[name=password]", "Enter")
    page.wait_for_url("**/playground/")
    path = str(made.folder / "session.json")
    context.storage_state(path=path)
    context.close()
    return path


@pytest.fixture
def page(browser: Browser, site: tuple[Installation, str], session: str) -> Iterator[Page]:
    context = browser.new_context(
        storage_state=session, base_url=site[1], viewport={"width": 1440, "height": 720}, locale="en"
    )
    page = context.new_page()
    said: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            said.append(f"{message.text} {message.location.get('url', '')}")

    page.on("console", note)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    context.close()
    assert said == []


def ask(page: Page, text: str) -> None:
    page.fill("#id_message", text)
    page.press("#id_message", "Enter")
    expect(page.locator("[data-streaming]")).to_have_count(1)


def ended(page: Page) -> None:
    expect(page.locator("[data-streaming]")).to_have_count(0, timeout=30_000)


def test_a_message_is_answered_formatted_and_metered(page: Page) -> None:
    page.goto("/playground/")
    ask(page, "Explain tides with code and a table.")
    expect(page.locator(f"{ANSWER} h4, {ANSWER} h3").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"/playground/c/[0-9a-f-]{36}/$"))
    ended(page)
    expect(page.locator(f"{ANSWER} .code pre")).to_be_visible()
    expect(page.locator(f"{ANSWER} table").first).to_be_visible()
    expect(page.locator(".turn-points dd")).to_have_text(re.compile(r"^0\.\d+$"), timeout=20_000)
    expect(page.locator("#conversations [aria-current]")).to_have_text("Explain tides with code and a table.")
    expect(page.locator("#id_message")).to_have_value("")
    expect(page.locator("#id_message")).to_be_focused()


def test_a_reload_shows_what_has_come_and_goes_on(page: Page) -> None:
    page.goto("/playground/")
    ask(page, "Explain currents with code and a table.")
    page.locator(f"{ANSWER} .blocks > *").first.wait_for()
    page.reload()
    page.locator(f"{ANSWER} .blocks > *").first.wait_for()
    ended(page)
    live = page.inner_html(f"{ANSWER} .blocks")
    page.reload()
    assert page.inner_html(f"{ANSWER} .blocks") == live
    assert page.locator(".turn-answer").count() == 1


def test_escape_stops_and_another_tab_sees_it(page: Page) -> None:
    page.goto("/playground/")
    ask(page, "Explain waves with code and a table.")
    other = page.context.new_page()
    other.goto(page.url)
    other.locator(f"{ANSWER} .blocks > *").first.wait_for()
    page.press("#id_message", "Escape")
    ended(page)
    ended(other)
    expect(other.locator(".turn-note")).to_have_text("You stopped this answer.")
    expect(page.locator("[data-send]")).to_be_visible()


def test_thinking_folds_and_names_its_time(page: Page) -> None:
    page.goto("/playground/?model=GLM-5.3-Flash")
    ask(page, "Explain dunes.")
    thinking = page.locator(".thinking")
    expect(thinking).to_be_visible()
    expect(thinking).not_to_have_attribute("open", "")
    thinking.locator("summary").click()
    expect(thinking.locator(".thinking-text")).to_be_visible()
    ended(page)
    expect(thinking.locator("summary")).to_have_text(re.compile(r"Thought for \d+(\.\d)? s"))


def test_a_draft_survives_a_reload_and_shift_enter_breaks_the_line(page: Page) -> None:
    page.goto("/playground/")
    page.type("#id_message", "first")
    page.press("#id_message", "Shift+Enter")
    page.type("#id_message", "second")
    page.reload()
    expect(page.locator("#id_message")).to_have_value("first\nsecond")
    page.fill("#id_message", "")


def test_enter_that_ends_a_composition_does_not_send(page: Page) -> None:
    page.goto("/playground/")
    page.fill("#id_message", "ni hao")
    page.evaluate(
        """document.getElementById("id_message").dispatchEvent(
             new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true}))"""
    )
    expect(page.locator("#id_message")).to_have_value("ni hao")
    assert page.locator(".turn").count() == 0
    page.fill("#id_message", "")


def test_typing_goes_on_while_an_answer_comes_and_enter_waits(page: Page) -> None:
    page.goto("/playground/")
    ask(page, "Explain rivers with code.")
    page.fill("#id_message", "the next question")
    page.press("#id_message", "Enter")
    ended(page)
    expect(page.locator("#id_message")).to_have_value("the next question")
    assert page.locator(".turn-user").count() == 1
    page.fill("#id_message", "")


def test_reading_above_is_not_pulled_down(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 420})
    page.goto("/playground/")
    ask(page, "Explain glaciers with code and a table.")
    page.locator(f"{ANSWER} .code").wait_for()
    page.evaluate("document.getElementById('chat-scroll').scrollTo(0, 0)")
    ended(page)
    assert page.evaluate("document.getElementById('chat-scroll').scrollTop") == 0


def test_another_model_changes_what_can_be_set(page: Page) -> None:
    page.goto("/playground/")
    page.select_option("#id_model", "MiMo-V2.6-Flash")
    expect(page.locator("#effort-reason")).to_be_visible()
    page.select_option("#id_model", "Gemma-4-31B-IT")
    expect(page.locator("#id_thinking")).to_be_visible()
    expect(page.locator("[data-model-name]")).to_have_text("Gemma-4-31B-IT")


def test_rename_and_delete_ask_and_say_what_they_did(page: Page) -> None:
    page.goto("/playground/")
    ask(page, "Explain rain.")
    ended(page)
    page.click("#chat-head summary")
    page.click("[data-opens='#rename-dialog']")
    page.fill("#id_title", "Weather")
    page.press("#id_title", "Enter")
    expect(page.locator(".chat-title")).to_have_text("Weather")
    expect(page.locator("#conversations [aria-current]")).to_have_text("Weather")
    page.click("#chat-head summary")
    page.click("#chat-head .menu-item-danger")
    page.click("#confirm-dialog [value=yes]")
    page.wait_for_url("**/playground/")
    expect(page.locator("#conversations", has_text="Weather")).to_have_count(0)


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    for path in ("/", "/models/", "/models/Qwen3.8-27B", "/playground/"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == width
