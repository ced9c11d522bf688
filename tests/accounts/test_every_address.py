"""Every address of the site, walked by a stranger and by each role, against the table of rights."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from typing import Any, NamedTuple, cast

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from accounts.keys import issue_key
from accounts.models import ApiKey, Invitation, Membership, Role, Team, User
from accounts.rights import RIGHTS, Right
from billing.models import Outcome, Source, UsageRecord
from gateway.models import DedicatedEndpoint
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam, SignIn

PUBLIC, SIGNED_IN, STAFF = "public", "signed in", "staff"

# Each address of ours: what it is opened with, and what that takes.
ADDRESSES: dict[str, tuple[str, str | Right]] = {
    "readyz": ("GET", PUBLIC),
    "metrics": ("GET", PUBLIC),
    "accounts:set_language": ("POST", PUBLIC),
    "accounts:keys": ("GET", Right.READ),
    "accounts:create_key": ("POST", Right.CREATE_KEYS),
    "accounts:leaked_key": ("POST", Right.READ),
    "accounts:key": ("GET", Right.READ),
    "accounts:change_key": ("POST", Right.MANAGE_OWN_KEYS),
    "accounts:rotate_key": ("POST", Right.MANAGE_OWN_KEYS),
    "accounts:disable_key": ("POST", Right.MANAGE_OWN_KEYS),
    "accounts:enable_key": ("POST", Right.MANAGE_OWN_KEYS),
    "accounts:revoke_key": ("POST", Right.MANAGE_OWN_KEYS),
    "accounts:team": ("GET", Right.READ),
    "accounts:new_team": ("POST", SIGNED_IN),
    "accounts:switch_team": ("POST", SIGNED_IN),
    "accounts:team_settings": ("POST", Right.CHANGE_SETTINGS),
    "accounts:transfer_team": ("POST", Right.MANAGE_OWNERS),
    "accounts:leave_team": ("GET", SIGNED_IN),
    "accounts:invite": ("POST", Right.MANAGE_MEMBERS),
    "accounts:revoke_invitation": ("POST", Right.MANAGE_MEMBERS),
    "accounts:set_role": ("POST", Right.MANAGE_MEMBERS),
    "accounts:remove_member": ("GET", Right.MANAGE_MEMBERS),
    "accounts:audit": ("GET", Right.READ_AUDIT),
    "accounts:audit_csv": ("GET", Right.READ_AUDIT),
    "accounts:invitation": ("GET", PUBLIC),
    "accounts:remembered_invitation": ("GET", SIGNED_IN),
    "accounts:oidc_sign_in": ("GET", PUBLIC),
    "accounts:profile": ("GET", SIGNED_IN),
    "accounts:activity": ("GET", SIGNED_IN),
    "accounts:end_session": ("POST", SIGNED_IN),
    "accounts:delete_account": ("GET", SIGNED_IN),
    "billing:staff": ("GET", STAFF),
    "billing:usage": ("GET", SIGNED_IN),
    "billing:export_csv": ("GET", SIGNED_IN),
    "billing:export_json": ("GET", SIGNED_IN),
    "billing:export_requests": ("GET", SIGNED_IN),
    "billing:statements": ("GET", SIGNED_IN),
    "billing:statement": ("GET", SIGNED_IN),
    "billing:statement_readers": ("POST", Right.CHANGE_SETTINGS),
    "billing:requests": ("GET", SIGNED_IN),
    "billing:request": ("GET", SIGNED_IN),
    "gateway:endpoints": ("GET", Right.READ),
    "gateway:add_endpoint": ("POST", Right.CHANGE_SETTINGS),
    "gateway:test_endpoint": ("POST", Right.CHANGE_SETTINGS),
    "gateway:switch_endpoint": ("POST", Right.CHANGE_SETTINGS),
    "gateway:delete_endpoint": ("POST", Right.CHANGE_SETTINGS),
    "gateway:upstreams": ("GET", STAFF),
    "playground:home": ("GET", PUBLIC),
    "playground:docs": ("GET", PUBLIC),
    "playground:docs_page": ("GET", PUBLIC),
    "playground:models": ("GET", PUBLIC),
    "playground:model": ("GET", PUBLIC),
    "playground:chat": ("GET", SIGNED_IN),
    "playground:conversations": ("GET", SIGNED_IN),
    "playground:model_controls": ("POST", SIGNED_IN),
    "playground:code": ("POST", SIGNED_IN),
    "playground:send": ("POST", Right.USE_MODELS),
    "playground:conversation": ("GET", SIGNED_IN),
    "playground:answer_again": ("POST", Right.USE_MODELS),
    "playground:compare": ("POST", Right.USE_MODELS),
    "playground:comparison": ("GET", SIGNED_IN),
    "playground:compare_stream": ("GET", SIGNED_IN),
    "playground:news": ("GET", SIGNED_IN),
    "playground:rename": ("POST", SIGNED_IN),
    "playground:pin": ("POST", SIGNED_IN),
    "playground:delete": ("POST", SIGNED_IN),
    "playground:restore": ("POST", SIGNED_IN),
    "playground:export": ("GET", SIGNED_IN),
    "playground:share": ("POST", SIGNED_IN),
    "playground:unshare": ("POST", SIGNED_IN),
    "playground:image": ("GET", SIGNED_IN),
    "playground:edit": ("POST", Right.USE_MODELS),
    "playground:give_results": ("POST", Right.USE_MODELS),
    "playground:show_branch": ("POST", SIGNED_IN),
    "playground:delete_turn": ("POST", SIGNED_IN),
    "playground:restore_turn": ("POST", SIGNED_IN),
    "playground:shared": ("GET", SIGNED_IN),
    "playground:shared_image": ("GET", SIGNED_IN),
    "playground:copy_shared": ("POST", Right.USE_MODELS),
    "playground:turn": ("GET", SIGNED_IN),
    "playground:stream": ("GET", SIGNED_IN),
    "playground:stop": ("POST", SIGNED_IN),
    "playground:meter": ("GET", SIGNED_IN),
    "playground:documents": ("GET", SIGNED_IN),
    "playground:documents_list": ("GET", SIGNED_IN),
    "playground:document": ("GET", SIGNED_IN),
    "playground:document_progress": ("GET", SIGNED_IN),
    "playground:document_sheets": ("GET", SIGNED_IN),
    "playground:document_picture": ("GET", SIGNED_IN),
    "playground:document_markdown": ("GET", SIGNED_IN),
    "playground:document_points": ("GET", SIGNED_IN),
    "playground:speech": ("GET", SIGNED_IN),
    "playground:speech_list": ("GET", SIGNED_IN),
    "playground:spoken": ("GET", SIGNED_IN),
    "playground:speech_state": ("GET", SIGNED_IN),
    "playground:speech_sound": ("GET", SIGNED_IN),
    "playground:speech_points": ("GET", SIGNED_IN),
    "playground:decisions": ("GET", SIGNED_IN),
    "playground:decisions_list": ("GET", SIGNED_IN),
    "playground:decision_question": ("GET", SIGNED_IN),
    "playground:decision": ("GET", SIGNED_IN),
    "playground:decision_picture": ("GET", SIGNED_IN),
    "playground:decision_points": ("GET", SIGNED_IN),
    "playground:documents_code": ("POST", SIGNED_IN),
    "playground:stop_document": ("POST", SIGNED_IN),
    "playground:delete_document": ("POST", SIGNED_IN),
    "playground:speech_code": ("POST", SIGNED_IN),
    "playground:delete_speech": ("POST", SIGNED_IN),
    "playground:decisions_code": ("POST", SIGNED_IN),
    "playground:delete_decision": ("POST", SIGNED_IN),
    "playground:read_document": ("POST", Right.USE_MODELS),
    "playground:go_on_reading": ("POST", Right.USE_MODELS),
    "playground:speak": ("POST", Right.USE_MODELS),
    "playground:decide": ("POST", Right.USE_MODELS),
}
# allauth's pages that are for strangers; all its others and the whole admin ask to sign in.
ALLAUTH_PUBLIC = frozenset(
    {
        "account_login",
        "account_logout",
        "account_inactive",
        "account_signup",
        "account_email_verification_sent",
        "account_confirm_email",
        "account_reset_password",
        "account_reset_password_done",
        "account_reset_password_from_key",
        "account_reset_password_from_key_done",
        "account_confirm_login_code",
        "mfa_authenticate",
        "mfa_login_webauthn",
        "socialaccount_login_cancelled",
        "socialaccount_login_error",
        "socialaccount_signup",
        "openid_connect_login",
        "openid_connect_callback",
    }
)


class Address(NamedTuple):
    name: str
    pattern: URLPattern
    parameters: tuple[str, ...]
    foreign: bool

    @property
    def is_ours(self) -> bool:
        return not self.foreign


def walk(resolver: URLResolver, names: tuple[str, ...] = (), given: tuple[str, ...] = ()) -> Iterator[Address]:
    for entry in resolver.url_patterns:
        parameters = (*given, *entry.pattern.converters)
        if isinstance(entry, URLResolver):
            yield from walk(entry, (*names, entry.namespace) if entry.namespace else names, parameters)
        else:
            module = entry.callback.__module__
            foreign = module.startswith(("allauth", "django")) and not hasattr(entry.callback, "access")
            yield Address(":".join((*names, entry.name or "")), entry, parameters, foreign)


ALL = list(walk(get_resolver()))
OURS = [address for address in ALL if address.is_ours]


class World(NamedTuple):
    """A team with one of everything, and another team with the same."""

    team: Team
    people: dict[Role, User]
    parameters: dict[str, Any]
    foreign: dict[str, Any]


def furnish(team: Team, maker: User, other: User, token: str) -> dict[str, Any]:
    invitation = Invitation.objects.create(
        team=team, email=f"{token}@example.com", digest=token, expires_at=timezone.now() + timedelta(days=1)
    )
    now = timezone.now()
    record = UsageRecord.objects.create(
        id=uuid.uuid4(),
        team_id=team.pk,
        model="m",
        endpoint="chat",
        source=Source.API,
        status=200,
        outcome=Outcome.OK,
        started_at=now,
        finished_at=now,
    )
    endpoint = DedicatedEndpoint.objects.create(team=team, slug=token, name=token, base_url="http://127.0.0.1:9/v1")
    return {
        "endpoint_id": endpoint.pk,
        "key_id": issue_key(team=team, created_by=maker, name="a key").key.pk,
        "invitation_id": invitation.pk,
        "membership_id": Membership.objects.get(team=team, user=other).pk,
        "record_id": record.pk,
    }


@pytest.fixture
def world(make_person: MakePerson, make_team: MakeTeam) -> World:
    people = {role: make_person(password=PASSWORD) for role in Role}
    team = make_team(name="Research", **{role.value: person for role, person in people.items()})
    colleague, stranger = make_person(), make_person()
    Membership.objects.create(team=team, user=colleague, role=Role.VIEWER)
    elsewhere = make_team(name="Elsewhere", owner=stranger)
    Membership.objects.create(team=elsewhere, user=make_person(), role=Role.MEMBER)
    return World(
        team,
        people,
        furnish(team, people[Role.MEMBER], colleague, "ours"),
        furnish(elsewhere, stranger, elsewhere.memberships.get(role=Role.MEMBER).user, "theirs"),
    )


NOWHERE = {
    "slug": "quick-start",
    "month": "2026-11",
    "conversation_id": uuid.UUID(int=0),
    "turn_id": 0,
    "document_id": uuid.UUID(int=0),
    "speech_id": uuid.UUID(int=0),
    "decision_id": uuid.UUID(int=0),
    "picture_id": 0,
    "index": 0,
    "image_id": 0,
    "form": "json",
    "session_id": 0,
    "token": "none",
    "provider_id": "none",
    "model_id": "Qwen3.8-27B",
}


def address_of(address: Address, parameters: dict[str, Any]) -> str:
    known = NOWHERE | parameters
    return reverse(address.name, kwargs={name: known[name] for name in address.parameters})


def open_address(client: Client, address: Address, parameters: dict[str, Any], method: str = "GET") -> HttpResponse:
    url = address_of(address, parameters)
    # Past the gate a page may lack what a serving process has: that is a 500 here, and no refusal.
    client.raise_request_exception = False
    answer: Any = client.post(url, {"role": "viewer"}) if method == "POST" else client.get(url)
    return cast(HttpResponse, answer)


def test_every_address_of_ours_is_in_the_table() -> None:
    assert {address.name for address in OURS} - {""} <= set(ADDRESSES)


@pytest.mark.parametrize("address", OURS, ids=lambda address: address.name)
def test_a_view_is_marked_as_the_table_says(address: Address) -> None:
    needed = ADDRESSES[address.name][1]
    callback: Any = address.pattern.callback
    assert callback.access == (needed if needed in {PUBLIC, STAFF} else "session")
    if isinstance(needed, Right):
        assert callback.right == needed


@pytest.mark.parametrize("address", OURS, ids=lambda address: address.name)
def test_a_stranger_gets_no_further_than_the_public_pages(address: Address, world: World, client: Client) -> None:
    method, needed = ADDRESSES[address.name]
    for tried in {"GET", method}:
        answer = open_address(client, address, world.parameters, tried)
        sent_to_sign_in = answer.status_code == HTTPStatus.FOUND and answer["Location"].startswith("/accounts/login/")
        assert sent_to_sign_in is (needed != PUBLIC)


@pytest.mark.parametrize("role", Role)
def test_each_role_opens_what_its_rights_open(role: Role, world: World, sign_in: SignIn) -> None:
    refused = set()
    for address in OURS:
        method, _ = ADDRESSES[address.name]
        client = sign_in(world.people[role], team=world.team)
        if open_address(client, address, world.parameters, method).status_code == HTTPStatus.FORBIDDEN:
            refused.add(address.name)
    expected = {
        name for name, (_, needed) in ADDRESSES.items() if isinstance(needed, Right) and needed not in RIGHTS[role]
    }
    assert refused == expected & {address.name for address in OURS}


@pytest.mark.parametrize("role", Role)
def test_staff_pages_do_not_exist_for_any_role(role: Role, world: World, sign_in: SignIn) -> None:
    client = sign_in(world.people[role], team=world.team)
    for address in OURS:
        method, needed = ADDRESSES[address.name]
        if needed == STAFF:
            answer = open_address(client, address, world.parameters, method)
            assert answer.status_code == HTTPStatus.NOT_FOUND, address.name


@pytest.mark.parametrize("role", Role)
def test_what_belongs_to_another_team_does_not_exist(role: Role, world: World, sign_in: SignIn) -> None:
    before = list(ApiKey.objects.order_by("pk").values()), list(Membership.objects.order_by("pk").values())
    for address in OURS:
        method, needed = ADDRESSES[address.name]
        if not set(address.parameters) & set(world.foreign) or needed == PUBLIC:
            continue
        client = sign_in(world.people[role], team=world.team)
        answer = open_address(client, address, world.foreign, method)
        may = not isinstance(needed, Right) or needed in RIGHTS[role]
        assert answer.status_code == (HTTPStatus.NOT_FOUND if may else HTTPStatus.FORBIDDEN), address.name
    assert before == (list(ApiKey.objects.order_by("pk").values()), list(Membership.objects.order_by("pk").values()))


@pytest.mark.parametrize(
    "address",
    [address for address in ALL if not address.is_ours and address.name and not address.parameters],
    ids=lambda address: address.name,
)
def test_allauth_and_the_admin_ask_strangers_to_sign_in(address: Address, client: Client, db: None) -> None:
    if address.name in ALLAUTH_PUBLIC or address.name in {"admin:login", "admin:logout"}:
        return
    try:
        url = reverse(address.name)
    except Exception:  # noqa: BLE001 - a pattern with parameters of its own; its view is walked by another name
        return
    answer = client.get(url)
    assert answer.status_code in {HTTPStatus.FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.MOVED_PERMANENTLY}, url
    if answer.status_code == HTTPStatus.FOUND:
        assert "/login/" in answer["Location"]


@pytest.mark.parametrize("role", Role)
def test_no_role_opens_the_admin(role: Role, world: World, sign_in: SignIn) -> None:
    answer = sign_in(world.people[role], team=world.team).get("/admin/accounts/apikey/")
    assert (answer.status_code, "/login/" in answer.headers.get("Location", "")) in {(302, True), (403, False)}
