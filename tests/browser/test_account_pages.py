"""The pages of keys, teams and accounts: nothing for axe to find, nothing too wide, and all of it by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.accounts_site import Furnished, furnish
from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS, Keyboard, expect_accessible
from tests.installation import Installation

APPEARANCES = [(360, "dark", "zh-hans"), (1440, "light", "en")]

# Numbers what Tab must reach: of a group of radio buttons the one that is chosen, or the first.
NUMBER_STOPS = """() => {
  const all = [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")];
  const stops = all.filter((element) => {
    if (element.disabled || element.tabIndex < 0) return false;
    if (!element.checkVisibility({ visibilityProperty: true })) return false;
    if (element.type !== "radio") return true;
    const group = all.filter((other) => other.type === "radio" && other.name === element.name);
    return element === (group.find((other) => other.checked) ?? group[0]);
  });
  stops.forEach((element, number) => { element.dataset.stop = number; });
  return stops.map((element) => element.outerHTML.slice(0, 120));
}"""
MORE_STOPS = 20
# What has the focus now, and whether one sees it.
FOCUSED = """() => {
  const element = document.activeElement;
  if (!element || element === document.body) return null;
  const style = getComputedStyle(element);
  const seen = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
  return [element.dataset.stop ?? "", seen];
}"""


@pytest.fixture(scope="module")
def furnished(demo_installation: Installation) -> Furnished:
    return furnish(demo_installation, tag="pages")


def sign_in(page: Page, session: str) -> None:
    page.context.add_cookies([{"name": "tf_session", "value": session, "domain": "127.0.0.1", "path": "/"}])


def visit(page: Page, furnished: Furnished) -> Iterator[str]:
    """Every page in turn, the entrances first."""
    for path in furnished.entrances:
        page.goto(path)
        yield path
    for session, paths in (
        (furnished.admin_session, furnished.admins_pages),
        (furnished.viewer_session, furnished.viewers_pages),
        (furnished.session, furnished.pages),
    ):
        sign_in(page, session)
        for path in paths:
            page.goto(path)
            assert urlsplit(page.url).path == path
            yield path


def is_too_wide(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


# Pages that say that something failed are no success.
FAILED = ["401 (Unauthorized)", "410 (Gone)"]


@pytest.mark.parametrize(("width", "scheme", "language"), APPEARANCES)
def test_axe_finds_nothing_on_any_page(
    width: int, scheme: str, language: str, open_page: Open, furnished: Furnished
) -> None:
    page = open_page("/accounts/login/", width=width, scheme=scheme, language=language, expected=FAILED)
    page.set_default_timeout(PATIENCE_MS)
    found: dict[str, list[str]] = {}
    for path in visit(page, furnished):
        violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        wrong = [f"{one['id']}: {[node['target'] for node in one['nodes'][:3]]}" for one in violations]
        found[path] = found.get(path, []) + wrong + (["too wide"] if is_too_wide(page) else [])
    assert {path: wrong for path, wrong in found.items() if wrong} == {}


def test_nothing_is_wider_than_a_narrow_window_in_english_either(open_page: Open, furnished: Furnished) -> None:
    page = open_page("/accounts/login/", width=360, expected=FAILED)
    page.set_default_timeout(PATIENCE_MS)
    assert [path for path in visit(page, furnished) if is_too_wide(page)] == []


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


def walk(page: Page, path: str) -> list[str]:
    """What is wrong with going through the page by Tab alone."""
    page.goto(path)
    assert urlsplit(page.url).path == path
    stops: list[str] = page.evaluate(NUMBER_STOPS)
    # A page may put the focus into its first field: the walk begins before everything.
    page.evaluate("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus()")
    reached: list[str] = []
    unseen: list[str] = []
    wanted = [str(number) for number in range(len(stops))]
    # A field of a date has several stops of its own.
    for _ in range(len(stops) + MORE_STOPS):
        page.keyboard.press("Tab")
        number, seen = page.evaluate(FOCUSED) or ("", True)
        if number not in reached[-1:]:
            reached.append(number)
        if not seen:
            unseen.append(number)
        if reached[-1] == wanted[-1]:
            break
    missed = [f"not reached: {stops[int(number)]}" for number in wanted if number not in reached]
    order = [] if reached == wanted or missed else [f"order: {reached}"]
    return missed + order + [f"not seen: {stops[int(number)]}" for number in unseen if number]


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
