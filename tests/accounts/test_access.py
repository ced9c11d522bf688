"""Who may open what, and in which team."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path, reverse

from accounts import urls as accounts_urls
from accounts.access import public, team_required
from accounts.models import Membership, Team, User
from tests.accounts.conftest import MakePerson, MakeTeam, SignIn


@team_required
async def team_name(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.user} {request.team}")  # type: ignore[attr-defined]


@public
async def anybody(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{request.user.is_authenticated} {request.team}")  # type: ignore[attr-defined]


urlpatterns = [path("team-name/", team_name), path("anybody/", anybody)]


@pytest.mark.parametrize("pattern", accounts_urls.urlpatterns, ids=lambda pattern: str(pattern.name))
def test_every_view_declares_its_access(pattern: object) -> None:
    assert pattern.callback.access in {"public", "session"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("address", ["/keys/", "/keys/new/", "/keys/1/revoke/"])
def test_a_stranger_is_sent_to_the_sign_in(client: Client, address: str) -> None:
    for answer in (client.get(address), client.post(address)):
        assert (answer.status_code, answer["Location"]) == (302, f"/accounts/login/?next={address}")


def test_an_expired_sign_in_takes_the_whole_page_there(client: Client) -> None:
    answer = client.get(
        "/keys/new/", headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/keys/?page=2"}
    )
    assert answer.status_code == HTTPStatus.OK
    assert answer["HX-Redirect"] == "/accounts/login/?next=/keys/%3Fpage%3D2"
    assert answer.content == b""


def test_a_page_and_its_partials_are_cached_apart(make_person: MakePerson, sign_in: SignIn) -> None:
    assert "HX-Request" in sign_in(make_person()).get("/keys/")["Vary"]


def test_a_foreign_site_cannot_be_returned_to_after_signing_in(client: Client) -> None:
    answer = client.get("/keys/new/", headers={"HX-Request": "true", "HX-Current-URL": "http://evil.example/x"})
    assert answer["HX-Redirect"] == "/accounts/login/?next=/keys/new/"


def test_a_person_works_in_the_team_chosen_and_in_the_first_without_a_choice(
    make_person: MakePerson, make_team: MakeTeam, sign_in: SignIn, client: Client
) -> None:
    person = make_person(email="mei@example.com")
    team = make_team(name="Research", member=person)
    assert b"a key of Research." in sign_in(person, team=team).get("/keys/").content
    client.force_login(person)
    assert b"a key of mei." in client.get("/keys/").content


def test_a_team_one_has_left_is_no_longer_ones_team(
    make_person: MakePerson, make_team: MakeTeam, sign_in: SignIn
) -> None:
    person = make_person()
    team = make_team(name="Research", member=person)
    client = sign_in(person, team=team)
    team.memberships.get(user=person).delete()
    assert b"Research" not in client.get("/keys/").content


def test_whoever_has_no_team_left_gets_the_personal_one_back(make_person: MakePerson, sign_in: SignIn) -> None:
    person = make_person()
    client = sign_in(person)
    Membership.objects.all().delete()
    assert client.get("/keys/").status_code == HTTPStatus.OK
    assert Team.objects.count() == Membership.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@override_settings(ROOT_URLCONF=__name__)
def test_async_views_read_person_and_team_as_plain_values() -> None:
    person = User.objects.create_user("mei@example.com")

    async def walk() -> list[bytes]:
        client = AsyncClient()
        stranger = await client.get("/anybody/")
        await client.aforce_login(person)
        return [answer.content for answer in (stranger, await client.get("/team-name/"), await client.get("/anybody/"))]

    assert async_to_sync(walk)() == [b"False None", b"mei@example.com mei", b"True mei"]


def test_the_addresses_are_these() -> None:
    assert reverse("accounts:keys") == "/keys/"
    assert reverse("accounts:create_key") == "/keys/new/"
    assert reverse("accounts:revoke_key", args=[7]) == "/keys/7/revoke/"
