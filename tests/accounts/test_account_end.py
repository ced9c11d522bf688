"""Deleting an account: the person goes, the teams' history keeps a name, and nothing of his goes on by accident."""

from __future__ import annotations

from datetime import timedelta

from allauth.account.models import EmailAddress
from django.test import Client
from django.utils import timezone

from accounts.audit import SYSTEM
from accounts.invitations import accept
from accounts.keys import digest_of, find_key, issue_key
from accounts.models import ApiKey, AuditEntry, Invitation, Membership, Role, User
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam

ADDRESS = "/accounts/delete/"
FORM = {"name": "Mei L.", "confirm": "mei@example.com", "keys": "revoke"}


def signed_in(make_person: MakePerson) -> tuple[User, Client]:
    """With the password given again, as ending an account demands."""
    person = make_person(email="mei@example.com", password=PASSWORD)
    EmailAddress.objects.create(user=person, email=person.email, verified=True, primary=True)
    client = Client()
    client.post("/accounts/login/", {"login": "mei@example.com", "password": PASSWORD})
    client.post("/accounts/reauthenticate/", {"password": PASSWORD})
    return person, client


def test_the_history_keeps_the_name_and_nothing_else(make_person: MakePerson, make_team: MakeTeam) -> None:
    person, client = signed_in(make_person)
    team = make_team(owner=make_person(), member=person)
    key = issue_key(team=team, created_by=person, name="batch").key
    own = issue_key(team=person.personal_team, created_by=person, name="own")
    elsewhere = Client()
    elsewhere.force_login(person)

    assert client.post(ADDRESS, FORM)["Location"] == "/accounts/login/"

    person.refresh_from_db()
    assert (str(person), person.email) == ("Mei L.", f"deleted-{person.pk}@deleted.invalid")
    assert not person.is_active
    assert not person.has_usable_password()
    assert not EmailAddress.objects.exists()
    assert not Membership.objects.filter(user=person).exists()
    key.refresh_from_db()
    assert (key.created_by, key.state) == (person, "revoked")
    assert find_key(digest_of(own.secret)) is None
    assert AuditEntry.objects.filter(team=team, action="member.left").exists()
    for browser in (client, elsewhere):
        assert browser.get("/keys/").status_code == 302
    client.post("/accounts/login/", {"login": "mei@example.com", "password": PASSWORD})
    assert "_auth_user_id" not in client.session


def test_keys_are_handed_to_the_teams_on_request(make_person: MakePerson, make_team: MakeTeam) -> None:
    person, client = signed_in(make_person)
    team = make_team(owner=make_person(), member=person)
    secret = issue_key(team=team, created_by=person, name="batch").secret
    own = issue_key(team=person.personal_team, created_by=person, name="own").secret
    client.post(ADDRESS, FORM | {"keys": "hand_over"})
    assert find_key(digest_of(secret))
    # Nobody is left in the personal team to look after this one.
    assert find_key(digest_of(own)) is None


def test_a_viewer_hands_no_key_on_by_ending_his_account(make_person: MakePerson, make_team: MakeTeam) -> None:
    person, client = signed_in(make_person)
    team = make_team(owner=make_person(), viewer=person)
    secret = issue_key(team=team, created_by=person, name="from better days").secret
    client.post(ADDRESS, FORM | {"keys": "hand_over"})
    assert find_key(digest_of(secret)) is None


def test_nobody_joins_a_team_that_everybody_has_left(make_person: MakePerson) -> None:
    """Invited by somebody who is a member no more."""
    person, client = signed_in(make_person)
    team = person.personal_team
    Invitation.objects.create(
        team=team, email="new@example.com", digest="0" * 64, expires_at=timezone.now() + timedelta(days=1)
    )
    client.post(ADDRESS, FORM)
    assert not Invitation.objects.pending().exists()
    reopened = Invitation.objects.get()
    Invitation.objects.update(revoked_at=None)
    assert accept(invitation=reopened, user=make_person(email="new@example.com"), actor=SYSTEM) is None
    assert not team.memberships.exists()


def test_a_team_is_not_left_without_an_owner(make_person: MakePerson, make_team: MakeTeam) -> None:
    person, client = signed_in(make_person)
    make_team(name="Research", owner=person, member=make_person())
    assert b"<strong>Research</strong>" in client.get(ADDRESS).content
    assert client.post(ADDRESS, FORM).status_code == 409
    person.refresh_from_db()
    assert person.is_active
    assert person.memberships.count() == 2


def test_a_wrong_confirmation_deletes_nothing(make_person: MakePerson) -> None:
    person, client = signed_in(make_person)
    assert b"not the address of your account" in client.post(ADDRESS, FORM | {"confirm": "x@example.com"}).content
    person.refresh_from_db()
    assert person.is_active


def test_a_session_that_is_not_fresh_is_asked_for_the_password_first(make_person: MakePerson, client: Client) -> None:
    client.force_login(make_person(email="mei@example.com", password=PASSWORD))
    answer = client.post(ADDRESS, FORM)
    assert answer["Location"].startswith("/accounts/reauthenticate/")
    assert User.objects.get().is_active


def test_the_same_address_may_sign_up_anew(make_person: MakePerson) -> None:
    _, client = signed_in(make_person)
    client.post(ADDRESS, FORM)
    client.post("/accounts/signup/", {"email": "mei@example.com", "password1": PASSWORD, "password2": PASSWORD})
    again = User.objects.get(email="mei@example.com")
    assert again.memberships.get().role == Role.OWNER
    assert not ApiKey.objects.exists()
