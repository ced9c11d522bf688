"""Everything one does in the chat, without a mouse, at a desk and on a telephone."""

from __future__ import annotations

import re
import struct
import zlib

from playwright.sync_api import FilePayload, Page, expect

from tests.browser.conftest import Open
from tests.browser.keyboard import Keyboard, expect_accessible, expect_answered
from tests.browser.windows import Window, in_each_of

POINTS = re.compile(r"^0\.\d+$")
ANSWER = ".turn-answer > .answer"


def picture(*, width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x20\x80\xc0" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def ask(keys: Keyboard, text: str) -> None:
    keys.press("Shift+Escape")
    keys.type(text)
    keys.press("Enter")
    expect_answered(keys.page)


def new_chat(keys: Keyboard) -> None:
    keys.press("Control+Shift+O")
    keys.page.wait_for_url("**/playground/")
    expect(keys.page.locator("#id_message")).to_be_focused()


def settings(keys: Keyboard, *, backwards: bool = False) -> None:
    """Into the settings: a column where there is room, else behind a button."""
    if keys.page.locator(".settings-toggle").is_visible():
        keys.use(".settings-toggle", backwards=backwards)


def pages(page: Page) -> str:
    return page.locator(".turn-answer .turn-pager-count").inner_text()


@in_each_of(0)
def test_answers_alternatives_edits_and_undo(open_page: Open, window: Window) -> None:
    page = open_page("/playground/", owner=True, **window)
    keys = Keyboard(page)
    expect_accessible(page)
    ask(keys, "Explain tides with code and a table. [[tokens=400]]")
    expect(page).to_have_url(re.compile(r"/playground/c/[0-9a-f-]{36}/$"))
    expect(page.locator(f"{ANSWER} .code pre")).to_be_visible()
    expect(page.locator(f"{ANSWER} table").first).to_be_visible()
    expect(page.locator(".turn-points dd")).to_have_text(POINTS)
    expect(page.locator("#context-meter")).to_be_visible()
    code = page.locator(f"{ANSWER} .code")
    expect(code.locator(".code-bar > span")).to_have_text("Python")
    keys.press("Control+Shift+;")
    expect(code.locator("[data-copy-code]")).to_have_attribute("data-copied", "")

    # Another answer stands beside the first, and one pages between them.
    keys.use(".turn-answer .turn-actions [data-asks]")
    expect(page.locator(".turn-answer .turn-pager-count")).to_have_text("2/2")
    expect_answered(page)
    keys.press("Alt+Comma")
    expect(page.locator(".turn-answer .turn-pager-count")).to_have_text("1/2")
    expect(page.locator(".turn-answer [data-page=after]")).to_be_focused()
    keys.press("ArrowRight")
    expect(page.locator(".turn-answer .turn-pager-count")).to_have_text("2/2")
    expect_accessible(page)

    # Another wording begins a branch; the old one stays.
    keys.press("Shift+Escape", "ArrowUp")
    expect(page.locator("[data-edit-text]")).to_be_focused()
    keys.press("Control+A")
    keys.type("Explain waves. [[tokens=40]]")
    keys.press("Control+Enter")
    expect(page.locator(".turn-user .turn-pager-count")).to_have_text("2/2")
    expect_answered(page)
    expect(page.locator(".turn-bubble")).to_have_text("Explain waves. [[tokens=40]]")
    keys.press("Shift+Escape", "ArrowUp")
    expect(page.locator("[data-edit-text]")).to_be_focused()
    keys.press("Escape")
    expect(page.locator(".turn-bubble")).to_have_text("Explain waves. [[tokens=40]]")

    # A turn goes with what follows it, and comes back.
    ask(keys, "And tides? [[tokens=20]]")
    keys.use(".turn-answer [data-keeps-place]")
    expect(page.locator(".turn")).to_have_count(1)
    keys.use(".toast-action")
    expect(page.locator(".turn")).to_have_count(4)
    page.reload()
    expect(page.locator(".turn")).to_have_count(4)


@in_each_of(2)
def test_tools_json_pictures_and_the_request_as_code(open_page: Open, window: Window) -> None:
    page = open_page("/playground/", owner=True, **window)
    keys = Keyboard(page)

    # A tool is defined, called, answered.
    keys.use("[data-prompt][data-settings*=get_weather]")
    expect(page.locator("#id_tools")).to_have_value(re.compile("get_weather"))
    keys.press("Enter")
    expect(page.locator(".call .code")).to_be_visible()
    expect_answered(page)
    keys.go(".call textarea")
    keys.type('{"temperature": 21}')
    keys.use(".calls .button-primary")
    expect(page.locator(".turn-tool")).to_be_visible()
    expect_answered(page)
    expect(page.locator(".call .badge")).to_be_visible()
    expect(page.locator(f"{ANSWER} table")).to_contain_text("21")
    expect_accessible(page)

    # JSON is shown in order.
    new_chat(keys)
    keys.use("[data-prompt][data-settings*=json_object]")
    keys.press("Enter")
    expect_answered(page)
    expect(page.locator(f"{ANSWER} .code .nt").first).to_be_visible()

    # A picture goes to a model that sees it, made small before.
    new_chat(keys)
    expect(page.locator("#attach")).to_have_attribute("aria-disabled", "true")
    settings(keys)
    keys.choose("#id_model", "Qwen3.8-27B")
    expect(page.locator("#attach")).not_to_have_attribute("aria-disabled", "true")
    expect(page.locator("#id_effort option:checked")).to_have_text(re.compile("xhigh"))
    keys.press("Escape", "Shift+Escape")
    with page.expect_file_chooser() as chosen:
        keys.use("#attach", backwards=False)
    chosen.value.set_files(FilePayload(name="large.png", mimeType="image/png", buffer=picture(width=3000, height=30)))
    expect(page.locator("#composer-images img")).to_be_visible()
    widths = "createImageBitmap(document.getElementById('id_images').files[0]).then(image => image.width)"
    assert page.evaluate(widths) == 2048
    ask(keys, "What is this? [[tokens=60]]")
    expect(page.locator(".turn-images img")).to_be_visible()
    assert page.evaluate("document.querySelector('.turn-images img').naturalWidth") == 2048
    expect(page.locator("#composer-images")).to_be_hidden()

    # The very request as code, in every dialect.
    keys.use("[data-opens='#code-dialog']")
    expect(page.locator("#panel-curl")).to_contain_text("data:image/png;base64,'\"$(base64")
    keys.go("#tab-curl")
    keys.press("ArrowRight", "ArrowRight")
    expect(page.locator("#panel-anthropic")).to_contain_text("from anthropic import Anthropic")
    expect_accessible(page)
    keys.press("Escape")
    expect(page.locator("#code-dialog")).to_be_hidden()


@in_each_of(1)
def test_per_model_truth_and_what_is_refused(open_page: Open, window: Window) -> None:
    page = open_page("/playground/?model=MiMo-V2.6-Flash", owner=True, expected=["422"], **window)
    keys = Keyboard(page)
    settings(keys)
    expect(page.locator("#id_effort")).to_be_disabled()
    expect(page.locator("#effort-reason")).to_be_visible()
    keys.go("#id_system")
    keys.type("Be brief.")
    keys.choose("#id_model", "Qwen/Qwen3-30B-A3B-FP8", backwards=True)
    expect(page.locator("#id_stop")).to_be_enabled()
    expect(page.locator("#id_system")).to_have_value("Be brief.")
    keys.choose("#id_model", "Qwen3.8-27B", backwards=True)
    expect(page.locator("#id_stop")).to_be_disabled()
    keys.go("#id_portable")
    keys.press("Space")
    expect(page.locator("#id_effort option[value=high]")).to_have_text("high → xhigh")
    keys.choose("#id_effort", "high", backwards=True)
    expect_accessible(page)
    keys.press("Escape")
    ask(keys, "Explain dunes. [[tokens=20]]")
    expect(page.locator(".turn-foot")).to_contain_text("xhigh")

    # What is wrong is said beside the message, which stays.
    settings(keys)
    keys.use("#tools-group summary")
    keys.go("#id_tools")
    keys.type("{no JSON")
    keys.press("Escape", "Shift+Escape")
    keys.type("Hello")
    keys.press("Enter")
    expect(page.locator("#composer-refusal [role=alert]")).to_be_visible()
    expect(page.locator("#id_message")).to_have_value("Hello")


def find_pin_and_rename(keys: Keyboard, word: str) -> None:
    page = keys.page
    keys.press("Control+K")
    expect(page.locator("#conversation-search")).to_be_focused()
    keys.type(word)
    expect(page.locator(".chat-list-row")).to_have_count(1)
    keys.go(".chat-list-row a")
    keys.use("[data-row=pin]")
    expect(page.locator(".chat-list-row")).to_have_count(1)
    keys.go("#conversation-search")
    keys.press("Control+A", "Delete")
    expect(page.locator(".chat-list-row[data-pinned]")).to_be_visible()
    keys.go(".chat-list-row a")
    keys.use("[data-row=rename]")
    expect(page.locator("#id_title")).to_be_focused()
    keys.press("Control+A")
    keys.type(f"Small kangaroos {word}")
    keys.press("Enter")
    expect(page.locator(".chat-title")).to_have_text(f"Small kangaroos {word}")
    expect_accessible(page)
    keys.press("Escape")


def take_along(keys: Keyboard, word: str) -> None:
    page = keys.page
    for form, holds in (("md", f"Tell me of the {word}."), ("json", f'"title": "Small kangaroos {word}"')):
        keys.use("#chat-head summary")
        with page.expect_download() as taken:
            keys.use(f"#chat-head [href$='.{form}']")
        assert taken.value.suggested_filename.endswith(f".{form}")
        assert holds in taken.value.path().read_text()
        keys.press("Escape")


def show_to_the_team_and_no_longer(keys: Keyboard, own: str) -> None:
    page = keys.page
    keys.use("#chat-head summary")
    keys.use("[data-opens='#share-dialog']")
    keys.use("#share-dialog .button-primary")
    link = page.locator("#share-link").inner_text()
    expect_accessible(page)
    page.goto(link)
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".composer")).to_have_count(0)
    expect_accessible(page)
    page.goto(own)
    keys.use("#chat-head summary")
    keys.use("[data-opens='#share-dialog']")
    keys.use("#share-dialog .button-quiet-danger")
    expect(page.locator("#share-link")).to_have_count(0)
    assert page.request.get(link).status == 404
    keys.press("Escape")


@in_each_of(3)
def test_the_list_sharing_and_shortcuts(open_page: Open, window: Window) -> None:
    page = open_page("/playground/", owner=True, expected=["404"], **window)
    keys = Keyboard(page)
    word = f"quokka{window['width']}"
    ask(keys, f"Tell me of the {word}. [[tokens=20]]")
    own = page.url

    find_pin_and_rename(keys, word)
    take_along(keys, word)
    show_to_the_team_and_no_longer(keys, own)

    # Help, then the end, and back again.
    keys.press("Control+/")
    expect(page.locator("#shortcuts-dialog")).to_be_visible()
    expect_accessible(page)
    keys.press("Escape")
    keys.use("#chat-head summary")
    keys.use("#chat-head .menu-item-danger")
    page.wait_for_url("**/playground/")
    keys.use(".toast-action")
    page.wait_for_url(own)
    expect(page.locator(".chat-title")).to_have_text(f"Small kangaroos {word}")


RENAME_AT_ONCE = """title => new MutationObserver((_, observer) => {
  const field = document.getElementById("id_title");
  if (!field) return;
  observer.disconnect();
  field.value = title;
  field.form.requestSubmit();
}).observe(document.getElementById("rename-dialog"), { childList: true })"""


def test_a_form_is_ready_as_soon_as_it_is_there(open_page: Open) -> None:
    """Sent a moment early it would leave the page and have what was typed in its address."""
    page = open_page("/playground/", owner=True)
    keys = Keyboard(page)
    ask(keys, "Tell me of the numbat. [[tokens=20]]")
    own = page.url
    page.evaluate(RENAME_AT_ONCE, "Small marsupials")
    keys.use("#chat-head summary")
    keys.use("#chat-head [data-opens='#rename-dialog']")
    expect(page.locator(".chat-title")).to_have_text("Small marsupials")
    assert page.url == own


@in_each_of(1)
def test_a_comparison_and_the_chat_that_goes_on_with_it(open_page: Open, window: Window) -> None:
    page = open_page("/playground/compare/", owner=True, **window)
    keys = Keyboard(page)
    expect_accessible(page)
    settings(keys)
    for number, model in enumerate(["Qwen3.8-27B", "GLM-5.3-Flash", "MiniCPM5-2B"], 1):
        keys.choose(f"#id_model_{number}", model)
    keys.choose("#id_effort", "high")
    keys.press("Escape")
    keys.press("Shift+Escape")
    keys.type("Explain dunes. [[tokens=40]]")
    keys.press("Enter")
    expect(page.locator(".compare-column")).to_have_count(3)
    expect_answered(page)
    expect(page).to_have_url(re.compile("/playground/compare/[0-9a-f-]{36}/$"))
    expect(page.locator(".turn-points dd")).to_have_text([POINTS, POINTS, POINTS])
    expect(page.locator(".compare-column .turn-meter dt").nth(0)).to_be_visible()
    expect(page.locator(".compare-column").nth(0)).to_contain_text("xhigh")
    expect_accessible(page)
    page.reload()
    expect(page.locator(".compare-column")).to_have_count(3)
    keys.use(".compare-column:nth-child(2) form .button")
    page.wait_for_url("**/playground/c/**")
    assert pages(page) == "2/3"
    expect(page.locator("#id_model")).to_have_value("GLM-5.3-Flash")


@in_each_of(1)
def test_a_failed_answer_says_why_and_is_tried_again(open_page: Open, window: Window) -> None:
    page = open_page("/playground/?model=Qwen3.8-27B", owner=True, **window)
    keys = Keyboard(page)
    settings(keys)
    keys.go("#id_max_tokens")
    keys.type("9000000")
    keys.press("Escape", "Shift+Escape")
    keys.type("Explain errors. [[tokens=20]]")
    keys.press("Enter")
    problem = page.locator(".turn-problem")
    expect(problem.locator("code")).to_be_visible()
    expect(problem.locator(".turn-problem-detail")).to_contain_text("9000000")
    # The request id leads to the record.
    request_id = problem.locator("code").inner_text()
    expect_accessible(page)
    settings(keys, backwards=True)
    keys.go("#id_max_tokens")
    keys.press("Control+A", "Delete", "Escape")
    keys.use(".turn-problem [data-asks]", backwards=True)
    expect_answered(page)
    expect(problem).to_have_count(0)
    # It had not said a word: nothing of it stands beside the answer.
    expect(page.locator(".turn-pager-count")).to_have_count(0)
    assert page.request.get(f"/usage/requests/{request_id}/").status == 200
