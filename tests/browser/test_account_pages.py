"""The pages of keys, teams and accounts: nothing for axe to find, nothing too wide, and all of it by keyboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.browser.accounts_site import Furnished, furnish
from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS, Keyboard, complaints, expect_accessible, is_too_wide, walk
from tests.installation import Installation

APPEARANCES = [(360, "dark", "zh-hans", "owner"), (360, "dark", "zh-hans", "others"), (1440, "light", "en", "owner")]


@pytest.fixture(scope="module")
def furnished(demo_installation: Installation) -> Furnished:
    return furnish(demo_installation, tag="pages")


def sign_in(page: Page, session: str) -> None:
    page.context.add_cookies([{"name": "tf_session", "value": session, "domain": "127.0.0.1", "path": "/"}])


def visit(
    page: Page, furnished: Furnished, *, whose: str, has_turn: Callable[[int], bool] = lambda number: True
) -> Iterator[str]:
    """The pages of the owner in turn, the entrances first; or those that an admin and a viewer see otherwise."""
    numbers = count()
    for path in furnished.entrances if whose == "owner" else ():
        if has_turn(next(numbers)):
            page.goto(path)
            yield path
    sessions = {
        "owner": [(furnished.session, furnished.pages)],
        "others": [
            (furnished.admin_session, furnished.admins_pages),
            (furnished.viewer_session, furnished.viewers_pages),
        ],
    }
    for session, paths in sessions[whose]:
        sign_in(page, session)
        for path in paths:
            if has_turn(next(numbers)):
                page.goto(path)
                assert urlsplit(page.url).path == path
                yield path


# Pages that say that something failed are no success.
FAILED = ["401 (Unauthorized)", "410 (Gone)"]


@pytest.mark.parametrize(("width", "scheme", "language", "whose"), APPEARANCES)
def test_axe_finds_nothing_on_any_page(
    width: int,
    scheme: str,
    language: str,
    whose: str,
    open_page: Open,
    furnished: Furnished,
    has_turn: Callable[[int, int], bool],
) -> None:
    page = open_page("/accounts/login/", width=width, scheme=scheme, language=language, expected=FAILED)
    page.set_default_timeout(PATIENCE_MS)
    found: dict[str, list[str]] = {}
    # What others see is looked at in one window alone.
    has_it = (lambda number: has_turn(number, width)) if whose == "owner" else (lambda number: True)
    for path in visit(page, furnished, whose=whose, has_turn=has_it):
        found[path] = found.get(path, []) + complaints(page)
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_nothing_is_wider_than_a_narrow_window_in_english_either(open_page: Open, furnished: Furnished) -> None:
    page = open_page("/accounts/login/", width=360, expected=FAILED)
    page.set_default_timeout(PATIENCE_MS)
    assert [
        path for whose in ("others", "owner") for path in visit(page, furnished, whose=whose) if is_too_wide(page)
    ] == []


def test_tab_reaches_everything_in_order_and_one_sees_where_it_is(open_page: Open, furnished: Furnished) -> None:
    page = open_page("/accounts/login/", width=360)
    page.set_default_timeout(PATIENCE_MS)
    found = {path: walk(page, path) for path in ("/accounts/login/", "/accounts/signup/")}
    sign_in(page, furnished.admin_session)
    found |= {path: walk(page, path) for path in furnished.admins_pages}
    sign_in(page, furnished.session)
    found |= {path: walk(page, path) for path in furnished.pages}
    page.set_viewport_size({"width": 1440, "height": 900})
    found |= {f"{path} in a wide window": walk(page, path) for path in ("/keys/", "/team/", "/accounts/profile/")}
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_a_key_is_made_rotated_and_revoked_without_a_mouse(open_page: Open, furnished: Furnished) -> None:
    page = open_page("/accounts/login/")
    keyboard = Keyboard(page)
    sign_in(page, furnished.session)
    page.goto("/keys/")
    keyboard.use("a[href='/keys/new/']")
    keyboard.go("input[name=name]")
    keyboard.type("made by keyboard")
    keyboard.press("Enter")
    expect(page.locator("#issued-secret")).to_have_text(re.compile(r"^rc-[0-9a-f]{48}$"))
    expect_accessible(page)

    # The list beside it has the key already. Escape changes one's mind, and the focus is back where it was.
    revoke = "button[aria-label='Revoke made by keyboard']"
    keyboard.use(revoke)
    expect(page.get_by_role("dialog")).to_be_visible()
    keyboard.press("Escape")
    expect(page.locator(revoke)).to_be_focused()

    address = page.get_by_role("link", name="made by keyboard").get_attribute("href")
    keyboard.use(f"a[href='{address}']", backwards=True)
    expect(page.get_by_role("heading", level=1)).to_have_text("made by keyboard")
    hint = page.locator(".page-lead .mono")
    first = hint.inner_text()
    keyboard.choose("select[name=grace]", "3600")
    keyboard.use("form[action$='/rotate/'] button")
    expect(page.locator("#issued-secret")).to_be_visible()
    expect(page.get_by_text("the secret before works until")).to_be_visible()
    assert hint.inner_text() != first

    keyboard.use("form[action$='/revoke/'] button")
    keyboard.use("dialog[open] [value=yes]")
    page.wait_for_url("**/keys/")
    expect(page.get_by_role("row", name="made by keyboard").get_by_text("Revoked")).to_be_visible()


def test_a_role_is_changed_and_a_team_chosen_without_a_mouse(open_page: Open, furnished: Furnished) -> None:
    page = open_page("/accounts/login/")
    keyboard = Keyboard(page)
    sign_in(page, furnished.session)
    page.goto("/team/")
    role = page.get_by_label("Role of a.very.long.address")
    expect(role).to_have_value("viewer")
    keyboard.choose("tr:last-child select[name=role]", "member")
    keyboard.use("tr:last-child form button")
    expect(page.locator("tr:last-child select[name=role]")).to_have_value("member")

    menu = ".topbar-team-menu"
    keyboard.use(f"{menu} > summary")
    expect(page.locator(f"{menu} .menu-panel")).to_be_visible()
    keyboard.press("Escape")
    expect(page.locator(f"{menu} .menu-panel")).to_be_hidden()
    expect(page.locator(f"{menu} > summary")).to_be_focused()
    keyboard.press("Enter")
    keyboard.use(f"{menu} button[name=team]:not([aria-current])")
    expect(page.get_by_role("heading", level=1)).to_have_text("Mei Lin")
