"""What one has written and put together and not sent yet: text, and pictures by every way they come in."""

from __future__ import annotations

import base64

from playwright.sync_api import FilePayload, Page, expect

from tests.browser.conftest import Open
from tests.browser.keyboard import Keyboard, expect_accessible, expect_answered
from tests.browser.test_chat_by_keyboard import picture
from tests.browser.windows import Window, in_each_of

WAITING = "#composer-images img"
SIZES = """Promise.all([...document.getElementById("id_images").files].map(file => createImageBitmap(file)))
           .then(images => images.map(image => image.width))"""
# Files as a drag or the clipboard carries them.
BRING = """([selector, kind, name, type, data]) => {
  const carried = new DataTransfer();
  const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
  carried.items.add(new File([bytes], name, { type }));
  const options = { bubbles: true, cancelable: true };
  const event = kind === "paste"
    ? new ClipboardEvent(kind, { ...options, clipboardData: carried })
    : new DragEvent(kind, { ...options, dataTransfer: carried });
  return !document.querySelector(selector).dispatchEvent(event);
}"""


def bring(
    page: Page, selector: str, kind: str, *, width: int, name: str = "shot.png", media: str = "image/png"
) -> bool:
    """Whether the page has taken it, rather than left it to the browser."""
    data = base64.b64encode(picture(width=width, height=30)).decode()
    return bool(page.evaluate(BRING, [selector, kind, name, media, data]))


@in_each_of(0)
def test_pictures_dropped_pasted_and_picked_wait_through_a_reload(open_page: Open, window: Window) -> None:
    page = open_page("/playground/?model=Qwen3.8-27B", owner=True, **window)
    keys = Keyboard(page)
    # Dropped anywhere over the chat; where it would land is shown.
    assert bring(page, "#turns", "dragover", width=8)
    expect(page.locator("[data-drop]")).to_have_attribute("data-over", "")
    assert bring(page, "#turns", "drop", width=3000)
    expect(page.locator("[data-drop]")).not_to_have_attribute("data-over", "")
    expect(page.locator(WAITING)).to_have_count(1)
    # Pasted into the message; text that is pasted stays the browser's.
    assert bring(page, "#id_message", "paste", width=500)
    expect(page.locator(WAITING)).to_have_count(2)
    assert not bring(page, "#id_message", "paste", width=1, name="a.txt", media="text/plain")
    with page.expect_file_chooser() as chosen:
        keys.use("#attach")
    chosen.value.set_files(FilePayload(name="third.png", mimeType="image/png", buffer=picture(width=700, height=9)))
    expect(page.locator(WAITING)).to_have_count(3)
    # What says it is a picture and is none is said by name, and the others stay.
    page.evaluate(BRING, ["#turns", "drop", "broken.png", "image/png", base64.b64encode(b"no picture").decode()])
    expect(page.locator(".toast-error")).to_contain_text("broken.png")
    keys.press("Shift+Escape")
    keys.type("What are these? [[tokens=30]]")
    expect_accessible(page)

    page.reload()
    expect(page.locator("#id_message")).to_have_value("What are these? [[tokens=30]]")
    expect(page.locator(WAITING)).to_have_count(3)
    # Large ones were made small.
    assert page.evaluate(SIZES) == [2048, 500, 700]
    keys.use(".composer-image-remove")
    expect(page.locator(WAITING)).to_have_count(2)
    page.reload()
    expect(page.locator(WAITING)).to_have_count(2)
    keys.press("Shift+Escape", "Enter")
    expect_answered(page)
    expect(page.locator(".turn-images img")).to_have_count(2)
    assert page.evaluate("document.querySelector('.turn-images img').naturalWidth") == 500
    page.goto("/playground/")
    expect(page.locator("#id_message")).to_have_value("")
    expect(page.locator(WAITING)).to_have_count(0)


@in_each_of(2)
def test_a_draft_is_its_conversations_and_its_writers(open_page: Open, window: Window) -> None:
    page = open_page("/playground/", owner=True, **window)
    keys = Keyboard(page)
    keys.press("Shift+Escape")
    keys.type("Tell me of drafts. [[tokens=20]]")
    keys.press("Enter")
    expect_answered(page)
    keys.type("first")
    keys.press("Shift+Enter")
    keys.type("second")
    # An input method's Enter takes a candidate and sends nothing.
    page.evaluate(
        """document.getElementById("id_message").dispatchEvent(
             new KeyboardEvent("keydown", {key: "Enter", isComposing: true, bubbles: true, cancelable: true}))"""
    )
    page.reload()
    expect(page.locator("#id_message")).to_have_value("first\nsecond")
    assert page.locator(".turn-user").count() == 1
    keys.press("Control+Shift+O")
    page.wait_for_url("**/playground/")
    expect(page.locator("#id_message")).to_have_value("")
    keys.type("of a new chat")
    page.reload()
    expect(page.locator("#id_message")).to_have_value("of a new chat")
    # Somebody else at this browser does not find it.
    names = page.evaluate("Object.keys(localStorage)")
    person = page.locator("body").get_attribute("data-person")
    assert all(name.startswith(f"tf-draft-{person}-") for name in names if name.startswith("tf-draft"))
    assert len([name for name in names if name.startswith("tf-draft")]) == 2
