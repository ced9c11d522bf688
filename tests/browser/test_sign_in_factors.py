"""Passkey, authenticator app and recovery codes, as a person sets them up and signs in with them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.installation import Installation, WebProcess
from tests.secrecy import is_secret

PASSWORD = is_secret("violet-harbour-42")
MAKE = """
import django
django.setup()
from allauth.account.models import EmailAddress
from accounts.models import User
user = User.objects.create_user("{email}", "{password}")
EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
"""


@pytest.fixture
def person(demo_installation: Installation, request: pytest.FixtureRequest) -> str:
    email = f"{request.node.name.replace('_', '-')[:40]}@example.com"
    demo_installation.run_python(MAKE.format(email=email, password=PASSWORD))
    return email


def sign_in(page: Page, email: str) -> None:
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()


def confirm_password(page: Page) -> None:
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()


def one_time_code(secret: str) -> str:
    """RFC 6238 for now."""
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    digest = hmac.new(key, int(time.time() // 30).to_bytes(8), hashlib.sha1).digest()
    offset = digest[-1] & 15
    return f"{(int.from_bytes(digest[offset : offset + 4]) & 0x7FFFFFFF) % 10**6:06}"


def test_a_passkey_is_added_and_signs_in(open_page: Open, site: WebProcess, person: str) -> None:
    # A passkey belongs to a name, and an address of numbers is none.
    here = f"http://localhost:{site.port}"
    page = open_page(f"{here}/accounts/login/")
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    device = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    simulated = {"isUserVerified": True, "automaticPresenceSimulation": True}
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": device | simulated})
    sign_in(page, person)
    page.wait_for_url("**/playground/")
    page.goto(f"{here}/accounts/2fa/webauthn/add/")
    confirm_password(page)
    page.get_by_label("Passwordless").check()
    page.get_by_role("button", name="Add").click()
    page.wait_for_url(f"{here}/accounts/2fa/recovery-codes/")
    page.goto(f"{here}/accounts/2fa/webauthn/")
    assert page.get_by_role("link", name="Remove").count() == 1

    page.context.clear_cookies()
    page.goto(f"{here}/accounts/login/?next=/keys/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(f"{here}/keys/")


def test_an_authenticator_app_and_a_recovery_code_sign_in(open_page: Open, person: str) -> None:
    page = open_page("/accounts/login/")
    sign_in(page, person)
    page.wait_for_url("**/playground/")
    page.goto("/accounts/2fa/totp/activate/")
    confirm_password(page)
    secret = is_secret(page.locator("#authenticator_secret").input_value())
    page.locator("#id_code").fill(one_time_code(secret))
    page.get_by_role("button", name="Activate").click()
    page.wait_for_url("/accounts/2fa/recovery-codes/")
    (code, *_others) = re.findall(r"\b\d{8}\b", page.locator("#recovery_codes").input_value())

    def sign_in_with_code() -> None:
        page.context.clear_cookies()
        page.goto("/accounts/login/?next=/keys/")
        sign_in(page, person)
        page.wait_for_url("**/accounts/2fa/authenticate/**")
        page.locator("#id_code").fill(code)
        page.get_by_role("button", name="Sign in", exact=True).click()

    sign_in_with_code()
    page.wait_for_url("/keys/")
    sign_in_with_code()  # It is spent.
    expect(page.get_by_text("Incorrect code")).to_be_visible()
