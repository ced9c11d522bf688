"""Documents, speech and decisions without a mouse: on a telephone at night in Chinese, at a desk by day in English."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS, Keyboard, expect_accessible
from tests.documents import pdf, png

VARIANTS = [
    pytest.param({"width": 1440, "scheme": "light", "language": "en"}, id="desk"),
    pytest.param({"width": 360, "scheme": "dark", "language": "zh-hans"}, id="telephone"),
]
# What the browser itself reports of an answer that says no.
REFUSED = ["status of 422"]


def points(page: Page) -> Any:
    return expect(page.locator(".spending-points dd").first, "points from the ledger")


def walk_code(keys: Keyboard, part: str) -> None:
    """The request as code, read and closed again."""
    keys.use('[data-opens="#code-dialog"]', backwards=True)
    dialog = keys.page.locator("#code-dialog")
    expect(dialog.locator("pre").first).to_contain_text(part, timeout=PATIENCE_MS)
    expect(dialog.locator("[role=tab]")).to_have_count(3)
    expect_accessible(keys.page)
    keys.press("Escape")
    expect(dialog).not_to_be_visible()


def drop(page: Page, name: str, media_type: str, data: bytes) -> None:
    """A file let fall onto the page, as from a folder's window."""
    page.evaluate(
        """([name, type, data]) => {
            const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([bytes], name, { type }));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        [name, media_type, base64.b64encode(data).decode()],
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_document_is_read_page_by_page(open_page: Open, variant: dict[str, Any]) -> None:
    page = open_page("/playground/ocr/", owner=True, **variant)
    keys = Keyboard(page)
    expect_accessible(page)
    walk_code(keys, "/v1/ocr")

    keys.use("#sample")
    page.wait_for_url(re.compile(r"/playground/ocr/[0-9a-f-]{36}/$"))
    expect(page.locator(".progress-done")).to_be_visible(timeout=PATIENCE_MS)
    # Three calls of a page each come to what one of three pages would.
    points(page).to_have_text("0.003", timeout=PATIENCE_MS)
    expect(page.locator(".sheet")).to_have_count(3)
    expect(page.locator(".sheet").nth(1).locator("h3")).to_have_text("Springs and neaps")
    drawn = page.locator(".sheet-source img").first
    drawn.scroll_into_view_if_needed()
    expect(drawn).to_have_js_property("naturalWidth", 1100, timeout=PATIENCE_MS)
    expect_accessible(page)
    walk_code(keys, "tides.pdf")

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keys.use("[data-copy-url]")
    expect(page.locator("[data-copy-url][data-copied]")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("# Tides: a short guide\n")
    with page.expect_download() as saved:
        keys.use("a[download]")
    assert saved.value.suggested_filename == "tides.md"
    assert Path(saved.value.path()).read_text() == copied

    # It is still there after a reload, until it is deleted.
    page.reload()
    expect(page.locator(".sheet")).to_have_count(3)
    keys.use(".bench-actions .button-quiet-danger")
    keys.use("#confirm-dialog [value=yes]")
    page.wait_for_url("**/playground/ocr/")


def test_files_are_dropped_and_pasted_and_what_cannot_be_read_is_said(open_page: Open) -> None:
    page = open_page("/playground/ocr/", owner=True, expected=REFUSED)
    page.set_default_timeout(PATIENCE_MS)
    drop(page, "locked.pdf", "application/pdf", b"%PDF-1.4 oops")
    expect(page.locator("#problem [role=alert]")).to_contain_text("damaged")
    # What was chosen stays chosen.
    expect(page.locator("#file-names")).to_have_text("locked.pdf")
    expect_accessible(page)
    drop(page, "scan.png", "image/png", png(300, 200))
    page.wait_for_url(re.compile(r"/playground/ocr/[0-9a-f-]{36}/$"))
    expect(page.locator(".sheet-text")).to_contain_text("300 × 200", timeout=PATIENCE_MS)
    expect(page.locator(".sheet-source img")).to_have_js_property("naturalWidth", 300)


def test_reading_is_watched_and_stopped(open_page: Open) -> None:
    page = open_page("/playground/ocr/", owner=True)
    page.set_default_timeout(PATIENCE_MS)
    long = pdf(*[f"Sheet {number}\nText of it." for number in range(1, 61)])
    page.set_input_files("#file", FilePayload(name="long.pdf", mimeType="application/pdf", buffer=long))
    page.locator("#read").press("Enter")
    page.wait_for_url(re.compile(r"/playground/ocr/[0-9a-f-]{36}/$"))
    page.locator("#progress button", has_text="Stop").press("Enter")
    expect(page.locator("#progress")).to_contain_text("of 60 pages read", timeout=PATIENCE_MS)
    read = int(re.findall(r"(\d+) of 60", page.locator("#progress").inner_text())[0])
    assert 1 <= read < 60
    points(page).to_have_text(f"{read / 1000:g}", timeout=PATIENCE_MS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_text_is_spoken_for_what_was_said_before(open_page: Open, variant: dict[str, Any]) -> None:
    page = open_page("/playground/speech/", owner=True, expected=REFUSED, **variant)
    keys = Keyboard(page)
    expect_accessible(page)
    keys.go("#text")
    # Nine code points, though some of them take two places in a browser's text, and two make one letter.
    keys.type("Hi 👍世界e\u0301\n")
    keys.press("Backspace")
    keys.type("!")
    expect(page.locator("[data-characters]")).to_have_text("9")
    expect(page.locator("[data-points]")).to_have_text("0.000000315")
    walk_code(keys, "/v1/audio/speech")
    keys.go("#text")
    keys.press("Control+Enter")
    page.wait_for_url(re.compile(r"/playground/speech/[0-9a-f-]{36}/$"))
    expect(page.locator(".spoken-state[data-complete]")).to_be_visible(timeout=PATIENCE_MS)
    page.wait_for_function("document.getElementById('sound').duration > 0.3")
    points(page).to_have_text("0.000000315", timeout=PATIENCE_MS)
    expect_accessible(page)
    with page.expect_download() as saved:
        keys.use("a[download]")
    assert Path(saved.value.path()).read_bytes().startswith(b"RIFF")

    # A format that browsers cannot play is only saved; one that the model server lacks is explained.
    keys.choose("#response_format", "pcm", backwards=True)
    keys.use("#speak-button")
    expect(page.locator("#spoken audio")).to_have_count(0, timeout=PATIENCE_MS)
    expect(page.locator("#spoken a[download]")).to_be_visible(timeout=PATIENCE_MS)
    keys.choose("#response_format", "mp3", backwards=True)
    keys.use("#speak-button")
    expect(page.locator("#spoken [role=alert]")).to_contain_text("wav and pcm only", timeout=PATIENCE_MS)
    expect(page.locator("#spoken [role=alert] code")).to_have_text(re.compile(r"^[0-9a-f-]{36}$"))
    expect(page.locator("#text")).to_have_value("Hi 👍世界e\u0301!")

    # Too long: said while it is typed, and not to be sent.
    keys.go("#text", backwards=True)
    keys.type("👍" * 4096)
    expect(page.locator("#count")).to_have_class(re.compile("over"))
    expect(page.locator("#speak-button")).to_be_disabled()
    expect_accessible(page)


@pytest.mark.parametrize("variant", VARIANTS)
def test_questions_are_built_and_answered(open_page: Open, variant: dict[str, Any]) -> None:
    page = open_page("/playground/decisions/", owner=True, expected=REFUSED, **variant)
    keys = Keyboard(page)
    expect_accessible(page)
    keys.go("#state")
    keys.type("The parcel is late and nobody answers.")
    keys.press("Control+Enter")
    expect(page.locator("#decided [role=alert]")).to_be_visible(timeout=PATIENCE_MS)

    # A choice: Enter goes from option to option, and adds one after the last.
    keys.go("[name^=name-]")
    keys.type("team")
    keys.go("[name^=option-]")
    for option in ("billing", "delivery", "sales"):
        keys.type(option)
        keys.press("Enter")
    expect(page.locator("[name^=option-]")).to_have_count(4)
    # A score.
    keys.use("[hx-get$='/question/']")
    second = page.locator("[data-question]").nth(1)
    expect(second.locator("[name^=name-]")).to_be_focused()
    keys.type("urgency")
    keys.choose("[data-question]:nth-child(2) [name^=type-]", "score")
    keys.go("[data-question]:nth-child(2) [name^=level-]")
    for level in ("later", "now"):
        keys.type(level)
        keys.press("Enter")
    # A noul.
    keys.use("[hx-get$='/question/']")
    expect(page.locator("[data-question]").nth(2).locator("[name^=name-]")).to_be_focused()
    keys.type("angry")
    keys.choose("[data-question]:nth-child(3) [name^=type-]", "noul")
    keys.go("[data-question]:nth-child(3) [name^=instructions-]")
    keys.type("Is the customer angry?")
    expect_accessible(page)
    walk_code(keys, "/v1/systemone")

    page.set_input_files("#images", FilePayload(name="a.png", mimeType="image/png", buffer=png(40, 30)))
    expect(page.locator("#thumbs img")).to_be_visible()
    keys.go("#decide-button")
    keys.press("Control+Enter")
    page.wait_for_url(re.compile(r"/playground/decisions/[0-9a-f-]{36}/$"))
    expect(page.locator(".answered")).to_have_count(3)
    expect(page.locator(".bar")).to_have_count(3 + 2 + 2)
    points(page).to_have_text(re.compile(r"^0\.\d+$"), timeout=PATIENCE_MS)
    expect_accessible(page)
    keys.go("#tab-bars")
    keys.press("ArrowRight")
    expect(page.locator("#panel-json pre")).to_contain_text('"input_tokens"')
    expect(page.locator("#panel-bars")).not_to_be_visible()
    expect_accessible(page)

    # Opened again from the history: the form and its picture are as they were.
    page.reload()
    expect(page.locator("[data-question]")).to_have_count(3)
    expect(page.locator("#thumbs [name=picture]")).to_be_checked()
    keys.use(".card .button-quiet-danger")
    keys.use("#confirm-dialog [value=yes]")
    page.wait_for_url("**/playground/decisions/")
