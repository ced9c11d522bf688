"""The browser's session as a credential of the API: with a CSRF token, as long as one is signed in, by one's role."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.installation import Installation, WebProcess
from tests.secrecy import PROMPT_MARK, is_secret

CHAT = {"model": "DeepSeek-V4-Flash", "messages": [{"role": "user", "content": f"Hello {PROMPT_MARK}"}]}
PASSWORD = is_secret("violet-harbour-42")

MAKE_VIEWER = f"""
import django
django.setup()
from accounts.models import Membership, Role, Team, User
owner = User.objects.get(email="owner@localhost")
viewer = User.objects.create_user("viewer@example.com", "{PASSWORD}")
viewer.memberships.all().delete()
Membership.objects.create(team=owner.personal_team, user=viewer, role=Role.VIEWER)
other = User.objects.create_user("other@example.com", "{PASSWORD}")
"""


@pytest.fixture(scope="module")
def web(demo_installation: Installation) -> Iterator[WebProcess]:
    demo_installation.run_python(MAKE_VIEWER)
    web = demo_installation.start_web()
    yield web
    web.process.terminate()
    web.process.wait(20)


class Browser(httpx.Client):
    def __init__(self, web: WebProcess) -> None:
        super().__init__(base_url=web.url, timeout=30)

    def submit(self, path: str, **form: str) -> httpx.Response:
        data = {**form, "csrfmiddlewaretoken": self.cookies["tf_csrf"]}
        return self.post(path, data=data, headers={"Origin": str(self.base_url)})

    def sign_in(self, email: str, password: str) -> None:
        self.get("/accounts/login/")
        assert self.submit("/accounts/login/", login=email, password=password).status_code == 302

    def chat(self, *, token: bool = True) -> httpx.Response:
        headers = {"X-CSRFToken": self.cookies["tf_csrf"]} if token else {}
        return self.post("/v1/chat/completions", json=CHAT, headers=headers)


def test_a_session_needs_the_csrf_token_for_what_costs_and_none_for_reading(
    web: WebProcess, demo_installation: Installation
) -> None:
    with Browser(web) as browser:
        browser.sign_in(demo_installation.email, demo_installation.password)
        refused = browser.chat(token=False)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "permission_denied")
        assert browser.chat().status_code == 200
        assert browser.get("/v1/models").status_code == 200


def test_a_viewer_reads_and_calls_no_model(web: WebProcess) -> None:
    with Browser(web) as browser:
        browser.sign_in("viewer@example.com", PASSWORD)
        assert browser.get("/v1/models").status_code == 200
        assert browser.chat().status_code == 403


def test_signing_in_changes_the_session_and_signing_out_ends_it(web: WebProcess) -> None:
    """A planted session id is worth nothing afterwards; a copied one, nothing after signing out."""
    with Browser(web) as browser, Browser(web) as thief:
        browser.cookies.set("tf_session", "planted0planted0planted0planted0", domain="127.0.0.1")
        browser.sign_in("other@example.com", PASSWORD)
        ids = re.findall(r"tf_session=(\w+)", browser.get("/healthz").request.headers["cookie"])
        assert "planted0planted0planted0planted0" not in ids[-1:]
        thief.cookies.set("tf_session", "planted0planted0planted0planted0")
        assert thief.get("/v1/models").status_code == 401
        thief.cookies.clear()
        thief.cookies.set("tf_session", ids[-1])
        assert thief.get("/v1/models").status_code == 200
        browser.submit("/accounts/logout/")
        assert thief.get("/v1/models").status_code == 401


def test_changing_the_password_ends_the_other_sessions_and_keeps_this_one(web: WebProcess) -> None:
    with Browser(web) as browser, Browser(web) as elsewhere:
        for one in (browser, elsewhere):
            one.sign_in("other@example.com", PASSWORD)
        new = {"password1": "copper-lantern-77", "password2": "copper-lantern-77"}
        assert browser.submit("/accounts/password/change/", oldpassword=PASSWORD, **new).status_code == 302
        assert browser.get("/v1/models").status_code == 200
        assert elsewhere.get("/v1/models").status_code == 401


@pytest.mark.parametrize("header", [{"Authorization": "Bearer rc-nothing"}, {"x-api-key": "rc-" + "0" * 48}])
def test_a_key_that_is_no_good_is_not_made_up_for_by_the_session(
    web: WebProcess, demo_installation: Installation, header: dict[str, str]
) -> None:
    with Browser(web) as browser:
        browser.sign_in(demo_installation.email, demo_installation.password)
        assert browser.get("/v1/models", headers=header).status_code == 401
