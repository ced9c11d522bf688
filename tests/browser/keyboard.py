"""A page used by somebody without a mouse, and what an accessibility checker says of it."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

# Tab stops from one control of a page to any other.
MOST_STOPS = 150
PATIENCE_MS = 30_000


class Keyboard:
    """`press` types a key; `go` walks by Tab to what is named; `use` presses Enter there."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(PATIENCE_MS)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.insert_text(text)

    def go(self, selector: str, *, backwards: bool = False) -> Locator:
        """The control that Tab reaches and `selector` names, with the keyboard on it."""
        key = "Shift+Tab" if backwards else "Tab"
        self.page.locator(selector).first.wait_for(state="attached")
        for _ in range(MOST_STOPS):
            if self.is_at(selector):
                return self.page.locator(":focus")
            self.press(key)
        raise AssertionError(f"no Tab reaches {selector}")

    def is_at(self, selector: str) -> bool:
        return bool(self.page.evaluate("selector => document.activeElement?.matches(selector)", selector))

    def use(self, selector: str, *, backwards: bool = False) -> None:
        self.go(selector, backwards=backwards)
        self.press("Enter")

    def choose(self, selector: str, value: str, *, backwards: bool = False) -> None:
        """An option of a select, as the arrow keys choose it."""
        self.go(selector, backwards=backwards).select_option(value)


def expect_accessible(page: Page) -> None:
    """Nothing that axe calls serious or critical; and nothing wider than the window."""
    found = [
        f"{violation['id']}: {[node['target'] for node in violation['nodes']][:4]}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
    assert not found, found
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), page.url


def expect_answered(page: Page) -> None:
    expect(page.locator("[data-streaming]")).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.locator(".turn-answer .turn-line").last).to_be_visible(timeout=PATIENCE_MS)
