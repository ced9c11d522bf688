"""A page used by somebody without a mouse, and what an accessibility checker says of it."""

from __future__ import annotations

from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect

# Tab stops from one control of a page to any other.
MOST_STOPS = 150
PATIENCE_MS = 30_000

# Lists what Tab must reach, and notes from then on what has had the focus and whether one saw it. Of a group of radio
# buttons that is the one that is chosen, or the first. What has an id is known by it: a part that a page renews by
# itself may take an element's place.
WATCH_FOCUS = """() => {
  const keyOf = (element) => element.id ? `#${element.id}` : element.dataset.stop ?? "";
  const isSeen = (element) => {
    const style = getComputedStyle(element);
    // A mark of the chart is drawn around its shape.
    const shape = element.querySelector(":scope > rect");
    return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none"
      || (shape !== null && getComputedStyle(shape).stroke !== "none");
  };
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
  // A page may put the focus into its first field: the walk begins before everything.
  document.activeElement.blur();
  document.body.tabIndex = -1;
  document.body.focus();
  window.focused = [];
  document.addEventListener("focusin", ({ target }) => { window.focused.push([keyOf(target), isSeen(target)]); });
  return stops.map((element) => [keyOf(element), element.outerHTML.slice(0, 120)]);
}"""
# A field of a date has several stops of its own.
MORE_STOPS = 24
STOPS_AT_A_TIME = 12


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


def complaints(page: Page) -> list[str]:
    """All that axe finds, and whether the page is wider than the window."""
    violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    found = [f"{one['id']}: {[node['target'] for node in one['nodes'][:3]]}" for one in violations]
    return [*found, "too wide"] if is_too_wide(page) else found


def is_too_wide(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def walk(page: Page, path: str) -> list[str]:
    """Open a page and go through it."""
    page.goto(path)
    assert urlsplit(page.url).path == urlsplit(path).path
    return go_through(page)


def go_through(page: Page) -> list[str]:
    """What is wrong with going through the page by Tab alone."""
    stops: dict[str, str] = dict(page.evaluate(WATCH_FOCUS))
    *_, last = stops
    focused: list[tuple[str, bool]] = []
    for _ in range(0, len(stops) + MORE_STOPS, STOPS_AT_A_TIME):
        for _ in range(STOPS_AT_A_TIME):
            page.keyboard.press("Tab")
        focused = page.evaluate("window.focused")
        if any(key == last for key, _ in focused):
            break
    reached: list[str] = []
    for key, _ in focused:
        if key != (reached[-1] if reached else None):
            reached.append(key)
        if key == last:
            break
    missed = [f"not reached: {html}" for key, html in stops.items() if key not in reached]
    order = [] if reached == list(stops) or missed else [f"order: {reached}"]
    unseen = {key for key, is_seen in focused if not is_seen and key in stops}
    return missed + order + [f"not seen: {stops[key]}" for key in sorted(unseen)]
