"""Debian's Chromium on a running product; any console error, page error or CSP report fails the test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from http.cookiejar import Cookie
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from tests import distribution
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


@pytest.fixture
def has_turn(pytestconfig: pytest.Config) -> Callable[[int, int], bool]:
    """Whether the page of that number is looked at in a window of that width. Of two windows, one narrow and one wide,
    the whole suite uses one for each page, in turn; `pytest tests/browser` both for every page."""
    is_whole = distribution.is_whole(pytestconfig)
    return lambda number, width: not is_whole or number % 2 == (width < 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the session: Playwright's loop runs in this thread, and later tests could not run one of theirs.
    # The shell has no window that nobody sees, which is a fifth of the work.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if program is None:
        missing("chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def site(demo_installation: Installation) -> WebProcess:
    return demo_installation.start_web()


@pytest.fixture(scope="session")
def owner_cookies(site: WebProcess, demo_installation: Installation) -> list[dict[str, Any]]:
    """What a browser has once the installation's first owner has signed in."""
    login = f"{site.url}/accounts/login/"
    with httpx.Client(timeout=60) as client:
        client.get(login)
        form = {
            "login": demo_installation.email,
            "password": demo_installation.password,
            "csrfmiddlewaretoken": client.cookies["tf_csrf"],
        }
        answer = client.post(login, data=form, headers={"Referer": login})
        assert answer.status_code == 302, answer.text
        return [_for_browser(cookie) for cookie in client.cookies.jar]


def _for_browser(cookie: Cookie) -> dict[str, Any]:
    return {"name": cookie.name, "value": cookie.value, "domain": "127.0.0.1", "path": cookie.path}


@pytest.fixture
def open_page(browser: Browser, site: WebProcess, request: pytest.FixtureRequest) -> Iterator[Open]:
    """`open_page("/keys/", width=360, scheme="dark", language="zh-hans")`: a page of a fresh browser.

    `owner=True` signs the installation's first owner in; `expected` are parts of complaints that the test provokes.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_one(
        path: str,
        *,
        width: int = 1440,
        height: int = 900,
        scheme: str = "light",
        language: str = "en",
        owner: bool = False,
        url: str = "",
        expected: Sequence[str] = (),
    ) -> Page:
        context = browser.new_context(
            base_url=url or site.url,
            viewport={"width": width, "height": height},
            color_scheme=scheme,  # type: ignore[arg-type]
            locale="zh-CN" if language.startswith("zh") else "en-US",
            # A window has it by itself, the shell has not.
            permissions=["clipboard-write"],
        )
        if owner:
            context.add_cookies(request.getfixturevalue("owner_cookies"))
        contexts.append(context)

        def complain(text: str) -> None:
            if not any(part in text for part in expected):
                complaints.append(text)

        def listen(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                complain(f"{message.type}: {message.text}")

        def watch(page: Page) -> None:
            page.on("console", listen)
            page.on("pageerror", lambda error: complain(f"page error: {error}"))

        context.on("page", watch)
        page = context.new_page()
        page.goto(path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []
