"""Hostile answers in a real browser: nothing runs, nothing is fetched, nothing is reported."""

from __future__ import annotations

import json

from playwright.sync_api import Dialog, Request, expect

from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS
from tests.installation import Installation, WebProcess
from tests.playground.test_markdown import HOSTILE

SEED = """
import json, django
django.setup()
from accounts.models import Team, User
from playground.models import Conversation, Turn
owner = User.objects.get(email={email!r})
team = owner.memberships.first().team
conversation = Conversation.objects.create(owner=owner, team=team, title="<img src=x onerror=alert(1)>", model="m")
parent = None
for text in json.loads({texts!r}):
    text = text.replace("\\x00", "")
    for role in ("user", "assistant"):
        parent = conversation.turns.create(
            role=role, content=text, reasoning=text if role == "assistant" else "", model="m", parent=parent,
            tool_calls=[dict(id=text, name=text, arguments=text)] if role == "assistant" else [],
        )
    conversation.turns.create(role="assistant", content=text, is_json=True, chosen=False, parent=parent.parent)
print(conversation.pk)
"""


def test_a_hostile_corpus_does_nothing(open_page: Open, site: WebProcess, demo_installation: Installation) -> None:
    code = SEED.format(email=demo_installation.email, texts=json.dumps(HOSTILE))
    conversation = demo_installation.run_python(code).strip()
    page = open_page("/playground/", owner=True)
    page.set_default_timeout(PATIENCE_MS)
    elsewhere: list[str] = []
    spoken: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith((f"{site.url}/static/", f"{site.url}/playground/", "data:")):
            elsewhere.append(request.url)

    page.on("request", note)

    def dismiss(dialog: Dialog) -> None:
        spoken.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.goto(f"/playground/c/{conversation}/")
    while page.locator(".chat-earlier").count():
        before = page.locator(".turn").count()
        page.locator(".chat-earlier").dispatch_event("click")
        expect(page.locator(".turn").nth(before)).to_be_attached(timeout=PATIENCE_MS)
    expect(page.locator(".turn")).to_have_count(2 * len(HOSTILE), timeout=PATIENCE_MS)
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    # A text of theirs is in no element that loads, runs, floats or submits.
    dangerous = ":is(script, img, iframe, style, link, form, input, object, embed, template)"
    assert page.locator(f":is(.answer, .turn-bubble, .call) {dangerous}, .answer svg").count() == 0
    attributes = ("style", "id", "name", "hx-get", "hx-post", "hx-trigger", "onclick", "onerror", "onload")
    inside = ".answer :is(" + ", ".join(f"[{name}]" for name in attributes) + ")"
    assert page.locator(f"{inside}:not(.blocks)").count() == 0
    hrefs = page.eval_on_selector_all(".answer a", "links => links.map(link => link.protocol)")
    assert set(hrefs) <= {"http:", "https:", "mailto:"}
    assert (elsewhere, spoken) == ([], [])


def test_the_policy_has_no_exceptions(open_page: Open, site: WebProcess) -> None:
    page = open_page("/playground/", owner=True)
    for path in ("/playground/", "/playground/compare/", "/accounts/login/", "/"):
        answer = page.request.get(f"{site.url}{path}")
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
