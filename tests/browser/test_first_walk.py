"""From sign-up to the first report, as a newcomer walks it."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.installation import Installation, WebProcess
from tests.services import wait_until

PATIENCE_MS = 30_000


def sign_up(page: Page, email: str) -> None:
    page.fill("input[name=email]", email)
    page.fill("input[name=password1]", "violet-harbour-42")
    page.fill("input[name=password2]", "violet-harbour-42")
    page.press("input[name=password2]", "Enter")
    page.wait_for_url("**/playground/**")


def send(page: Page, text: str) -> None:
    page.fill("textarea[name=message]", text)
    page.press("textarea[name=message]", "Enter")


def test_sign_up_chat_stop_key_call_and_usage(
    open_page: Open, site: WebProcess, demo_installation: Installation
) -> None:
    page = open_page("/accounts/signup/")
    page.set_default_timeout(PATIENCE_MS)
    sign_up(page, "newcomer@example.com")

    # An answer is streamed, formatted, and priced when it has been rated.
    send(page, "Show me a table and some Python [[tokens=120]] [[pace=0.002]]")
    answer = page.locator(".turn-answer").last
    expect(answer.locator(".answer table")).to_be_visible(timeout=PATIENCE_MS)
    expect(answer.locator(".turn-points dd")).to_have_text(re.compile(r"^0\.\d+$"), timeout=PATIENCE_MS)
    assert re.search(r"/playground/c/[0-9a-f-]{36}/", page.url)

    # A reload shows the same conversation.
    text = answer.locator(".answer:not(.thinking-text)").inner_text()
    page.reload()
    expect(page.locator(".turn-answer .answer:not(.thinking-text)")).to_have_text(
        re.compile(re.escape(text.split("\n")[0]))
    )

    # Stop ends the call at the backend, not only the page.
    send(page, "Tell a long story [[tokens=4000]] [[pace=0.05]]")
    stopped = page.locator(".turn-answer").last
    expect(stopped.locator(".answer:not(.thinking-text)")).not_to_be_empty(timeout=PATIENCE_MS)
    page.click("[data-stop]")
    expect(page.locator("[data-send]")).to_be_visible(timeout=PATIENCE_MS)
    team_sql = (
        "(select team_id from accounts_membership m join accounts_user u on u.id = m.user_id "
        "where u.email = 'newcomer@example.com')"
    )
    sql = f"select completion_tokens from billing_usagerecord where outcome = 'stopped' and team_id = {team_sql}"
    wait_until(lambda: len(demo_installation.query(sql)) == 1, what="the record of the stopped call")
    assert 0 < demo_installation.query(sql)[0][0] < 4000

    # A key is made, shown once, and works.
    page.goto("/keys/new/")
    page.fill("input[name=name]", "first program")
    page.press("input[name=name]", "Enter")
    shown = page.get_by_text(re.compile(r"rc-[0-9a-f]{48}")).first
    shown.wait_for()
    secret = re.search(r"rc-[0-9a-f]{48}", page.content())
    assert secret
    call = httpx.post(
        f"{site.url}/v1/chat/completions",
        headers={"Authorization": f"Bearer {secret[0]}"},
        json={"model": "MiniCPM5-2B", "messages": [{"role": "user", "content": "Hello"}]},
    )
    assert call.status_code == 200
    page.goto("/keys/")
    assert secret[0] not in page.content()

    # The report shows all three requests and exactly what they cost.
    total_sql = f"select count(*), sum(requests), sum(amount_ppt) from billing_rollup where team_id = {team_sql}"
    wait_until(lambda: demo_installation.query(total_sql)[0][1] == 3, what="three rated requests")
    amount = int(demo_installation.query(total_sql)[0][2])
    page.goto("/usage/")
    points = f"{amount // 10**12}.{amount % 10**12:012d}".rstrip("0")
    expect(page.get_by_text(points).first).to_be_visible()
