"""Signing in by an OpenID Connect provider on a socket: whose account it is, and who is turned away."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount, SocialToken
from django.conf import LazySettings
from django.core import mail
from django.test import Client

from accounts.audit import SYSTEM
from accounts.invitations import invite
from accounts.models import AuditEntry, Role, User
from config.oidc import oidc_provider
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam
from tests.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, oidc_provider_server
from tests.services import dead_port

SIGN_IN = "/accounts/oidc/oidc/login/"


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with oidc_provider_server() as made:
        yield made


def configure(settings: LazySettings, url: str) -> None:
    settings.OIDC_SERVER_URL, settings.OIDC_NAME = url, "Campus"
    settings.SOCIALACCOUNT_PROVIDERS = oidc_provider(url, client_id=CLIENT_ID, secret=CLIENT_SECRET, name="Campus")


@pytest.fixture
def provider(server: Provider, settings: LazySettings, db: None) -> Provider:
    configure(settings, server.url)
    server.signs_in("u-1", email="mei@example.com", email_verified=True, name="Mei Lin")
    return server


def callback_of(client: Client, *, process: str = "login", next: str = "/keys/") -> str:
    """Where the provider sends the browser back to, once the button was pressed."""
    sent = client.post(SIGN_IN, {"next": next, "process": process})
    assert sent.status_code == HTTPStatus.FOUND, sent.content
    back = httpx.get(sent["Location"])
    assert back.status_code == HTTPStatus.FOUND, back.text
    return back.headers["location"].removeprefix("http://testserver")


def sign_in(client: Client, **options: Any) -> Any:
    return client.get(callback_of(client, **options))


def person_of(client: Client) -> str | None:
    """The address of whoever is signed in."""
    id = client.session.get("_auth_user_id")
    return User.objects.get(pk=id).email if id else None


def test_the_sign_in_page_names_the_provider(provider: Provider, client: Client) -> None:
    assert "Sign in with Campus" in client.get("/accounts/login/").content.decode()


def test_a_newcomer_gets_an_account_with_name_address_and_team(provider: Provider, client: Client) -> None:
    assert sign_in(client)["Location"] == "/keys/"
    person = User.objects.get()
    assert (person_of(client), person.name, person.has_usable_password()) == ("mei@example.com", "Mei Lin", False)
    assert person.memberships.get().role == Role.OWNER
    assert EmailAddress.objects.get().verified
    assert client.get("/keys/").status_code == HTTPStatus.OK
    assert list(AuditEntry.objects.values_list("action", "actor_id")) == [("account.signed_in", person.pk)]
    # What the provider's own API could be called with is not kept.
    assert not SocialToken.objects.exists()


def test_the_same_subject_is_the_same_person_whatever_its_address_is_by_then(provider: Provider) -> None:
    sign_in(Client())
    provider.signs_in("u-1", email="mei.new@example.com", email_verified=True)
    again = Client()
    sign_in(again)
    assert (person_of(again), User.objects.count()) == ("mei@example.com", 1)


def test_an_address_that_the_provider_verified_opens_the_account_that_has_it(
    provider: Provider, client: Client, make_person: MakePerson
) -> None:
    person = make_person(email="mei@example.com", password=PASSWORD)
    EmailAddress.objects.create(user=person, email=person.email, primary=True, verified=True)
    sign_in(client)
    assert (person_of(client), User.objects.count()) == ("mei@example.com", 1)


def test_an_address_that_nobody_verified_opens_nobodys_account(
    provider: Provider, client: Client, make_person: MakePerson
) -> None:
    person = make_person(email="mei@example.com", password=PASSWORD)
    EmailAddress.objects.create(user=person, email=person.email, primary=True, verified=True)
    provider.signs_in("u-2", email="mei@example.com", email_verified=False)
    sign_in(client)
    assert person_of(client) is None
    assert not SocialAccount.objects.exists()


def test_an_account_that_never_confirmed_its_address_does_not_keep_its_password(
    provider: Provider, client: Client, make_person: MakePerson
) -> None:
    """Somebody else may have signed up with the address beforehand, to be let into the account of its owner."""
    squatter = make_person(email="mei@example.com", password=PASSWORD)
    EmailAddress.objects.create(user=squatter, email=squatter.email, primary=True, verified=False)
    sign_in(client)
    other = Client()
    other.post("/accounts/login/", {"login": "mei@example.com", "password": PASSWORD})
    assert person_of(client) is None or person_of(other) is None


def test_a_closed_site_takes_no_newcomer_and_knows_its_people(provider: Provider, settings: LazySettings) -> None:
    sign_in(Client())
    settings.SIGN_UP = "closed"
    known, newcomer = Client(), Client()
    sign_in(known)
    provider.signs_in("u-2", email="tom@example.com", email_verified=True)
    page = sign_in(newcomer)
    assert (person_of(known), person_of(newcomer)) == ("mei@example.com", None)
    assert page.status_code < HTTPStatus.INTERNAL_SERVER_ERROR


def test_by_invitation_only_the_invited_address_gets_in_and_lands_there(
    provider: Provider, settings: LazySettings, make_person: MakePerson, make_team: MakeTeam
) -> None:
    settings.SIGN_UP = "invite"
    owner = make_person()
    team = make_team(owner=owner)
    invite(team=team, email="mei@example.com", role=Role.MEMBER, invited_by=owner, actor=SYSTEM)
    (path,) = re.findall(r"http://localhost:8000(/invitations/\S+)", str(mail.outbox[0].body))
    invited, stranger = Client(), Client()
    invited.get(path)
    assert sign_in(invited, next="")["Location"] == "/invitations/"
    assert invited.post("/invitations/")["Location"] == "/team/"
    assert team.memberships.filter(user__email="mei@example.com", role=Role.MEMBER).exists()
    provider.signs_in("u-2", email="tom@example.com", email_verified=True)
    sign_in(stranger)
    assert person_of(stranger) is None


@pytest.mark.parametrize(
    "wrong", [{"aud": "another-client"}, {"iss": "http://evil.example"}, {"exp": int(time.time()) - 3600}]
)
def test_a_token_for_somebody_else_or_from_somebody_else_signs_nobody_in(
    wrong: dict[str, Any], provider: Provider, client: Client
) -> None:
    provider.token_claims = wrong
    page = sign_in(client)
    assert page.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
    assert (person_of(client), User.objects.count()) == (None, 0)


def test_an_answer_that_nobody_asked_for_signs_nobody_in(provider: Provider, client: Client) -> None:
    """The state belongs to the browser that set out: another one is not signed in to the attacker's account."""
    callback = callback_of(Client())
    page = client.get(callback)
    assert (person_of(client), page.status_code < HTTPStatus.INTERNAL_SERVER_ERROR) == (None, True)


def test_a_code_works_once(provider: Provider, client: Client) -> None:
    callback = callback_of(client)
    client.get(callback)
    client.post("/accounts/logout/")
    client.get(callback)
    assert person_of(client) is None


def test_an_answer_kept_until_more_is_known_holds_no_token_of_the_provider(provider: Provider, client: Client) -> None:
    """Without an address the person is asked for one; what was answered waits in the session meanwhile."""
    provider.signs_in("u-3", name="Without Address")
    assert sign_in(client)["Location"] == "/accounts/3rdparty/signup/"
    assert "token" not in client.session["socialaccount_sociallogin"]
    assert client.get("/accounts/3rdparty/signup/").status_code == HTTPStatus.OK


def test_who_changes_his_mind_is_told_and_sent_back(provider: Provider, client: Client) -> None:
    provider.denied = True
    page = client.get(callback_of(client), follow=True)
    assert (page.status_code, person_of(client)) == (HTTPStatus.OK, None)
    assert b"/accounts/login/" in page.content


def test_a_provider_that_is_away_is_said_on_a_page(settings: LazySettings, client: Client, db: None) -> None:
    configure(settings, f"http://127.0.0.1:{dead_port()}")
    page = client.post(SIGN_IN)
    assert page.status_code == HTTPStatus.BAD_GATEWAY
    assert b"<main" in page.content


def test_a_client_that_the_provider_refuses_is_said_on_a_page(
    provider: Provider, settings: LazySettings, client: Client
) -> None:
    callback = callback_of(client)
    settings.SOCIALACCOUNT_PROVIDERS = oidc_provider(provider.url, client_id=CLIENT_ID, secret="other", name="Campus")
    page = client.get(callback)
    assert (person_of(client), page.status_code < HTTPStatus.INTERNAL_SERVER_ERROR) == (None, True)


def test_an_account_is_connected_and_disconnected(provider: Provider, client: Client, make_person: MakePerson) -> None:
    person = make_person(email="lin@example.com", password=PASSWORD)
    client.force_login(person)
    sign_in(client, process="connect")
    account = SocialAccount.objects.get()
    assert (account.user, account.uid) == (person, "u-1")
    client.post("/accounts/3rdparty/", {"account": account.pk})
    assert not SocialAccount.objects.exists()
    noted = AuditEntry.objects.order_by("id").values_list("action", "actor_id", "details")
    factor = {"factor": "openid"}
    assert list(noted) == [
        ("account.factor_added", person.pk, factor),
        ("account.factor_removed", person.pk, factor),
    ]


def test_an_address_of_the_provider_with_a_slash_at_its_end_is_the_same(server: Provider) -> None:
    made = oidc_provider(f"{server.url}/", client_id=CLIENT_ID, secret="", name="Campus")
    assert made["openid_connect"]["APPS"][0]["settings"]["server_url"] == server.url
