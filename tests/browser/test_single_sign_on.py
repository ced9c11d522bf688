"""Signing in by an OpenID Connect provider in a browser: its redirects, and the policy that must let them pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.keyboard import PATIENCE_MS, expect_accessible
from tests.installation import Installation, WebProcess
from tests.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, oidc_provider_server


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with oidc_provider_server() as made:
        yield made


@pytest.fixture(scope="module")
def web(demo_installation: Installation, provider: Provider) -> Iterator[WebProcess]:
    named = {"OIDC_NAME": "Campus", "OIDC_CLIENT_ID": CLIENT_ID, "OIDC_CLIENT_SECRET": CLIENT_SECRET}
    web = demo_installation.start_web(environment={"OIDC_SERVER_URL": provider.url} | named)
    yield web
    web.process.terminate()
    web.process.wait(20)


def test_a_newcomer_signs_in_out_and_in_again(open_page: Open, web: WebProcess, provider: Provider) -> None:
    provider.signs_in("campus-7", email="lin.campus@example.com", email_verified=True, name="Lin Campus")
    page = open_page("/accounts/login/?next=/keys/", url=web.url)
    page.set_default_timeout(PATIENCE_MS)
    expect_accessible(page)
    page.get_by_role("button", name="Sign in with Campus").click()
    page.wait_for_url(f"{web.url}/keys/")

    page.goto("/accounts/3rdparty/")
    expect(page.get_by_role("main").get_by_text("lin.campus@example.com")).to_be_visible()
    expect(page.get_by_role("button", name="Disconnect")).to_be_visible()
    expect_accessible(page)

    page.goto("/accounts/logout/")
    page.get_by_role("main").get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{web.url}/")
    page.goto("/accounts/login/")
    page.get_by_role("button", name="Sign in with Campus").click()
    page.wait_for_url("**/playground/")
    page.goto("/accounts/profile/")
    expect(page.locator("input[name=name]")).to_have_value("Lin Campus")


def test_whoever_refuses_there_is_told_here(open_page: Open, web: WebProcess, provider: Provider) -> None:
    provider.signs_in("campus-8", email="tom.campus@example.com", email_verified=True)
    provider.denied = True
    page = open_page("/accounts/login/", url=web.url)
    page.set_default_timeout(PATIENCE_MS)
    page.get_by_role("button", name="Sign in with Campus").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Signing in was cancelled")
    expect_accessible(page)
    page.get_by_role("link", name="Back to the sign-in page").click()
    page.wait_for_url("**/accounts/login/")
