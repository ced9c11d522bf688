"""Debian's Chromium on a running product; any console error, page error or CSP report fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests.installation import Installation, WebProcess
from tests.services import missing

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

type Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the session: Playwright's loop runs in this thread, and later tests could not run one of theirs.
    program = shutil.which("chromium")
    if program is None:
        missing("chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def site(demo_installation: Installation) -> WebProcess:
    return demo_installation.start_web()


@pytest.fixture
def open_page(browser: Browser, site: WebProcess) -> Iterator[Open]:
    """`open_page("/keys/", width=360, scheme="dark", language="zh-hans")`: a page of a fresh browser."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(f"{message.type}: {message.text}")

    def open_one(path: str, *, width: int = 1440, scheme: str = "light", language: str = "en") -> Page:
        context = browser.new_context(
            base_url=site.url,
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            locale="zh-CN" if language.startswith("zh") else "en-US",
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", listen)
        page.on("pageerror", lambda error: complaints.append(f"page error: {error}"))
        page.goto(path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []
