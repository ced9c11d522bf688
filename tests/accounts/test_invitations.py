"""Invitations by mail: for one address, once, for a week, and never a way round the rights."""

from __future__ import annotations

import re
from datetime import timedelta
from smtplib import SMTPException

import pytest
from allauth.account.models import EmailAddress
from django.conf import LazySettings
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend
from django.test import Client
from django.utils import timezone

from accounts.audit import Actor
from accounts.invitations import MAX_PENDING, InvitationRefused, find_invitation, invite
from accounts.models import AuditEntry, Invitation, Role, Team, User
from tests.accounts.conftest import PASSWORD, MakePerson, MakeTeam, SignIn

ACTOR = Actor(1, "owner", "203.0.113.9")


@pytest.fixture
def owner(make_person: MakePerson) -> User:
    return make_person(email="owner@example.com")


@pytest.fixture
def team(owner: User, make_team: MakeTeam) -> Team:
    return make_team(owner=owner)


def send(team: Team, owner: User, *, email: str = "new@example.com", role: Role = Role.MEMBER) -> str:
    """The path of the link in the mail."""
    mail.outbox.clear()
    invite(team=team, email=email, role=role, invited_by=owner, actor=ACTOR)
    (message,) = mail.outbox
    assert message.to == [email.lower()]
    (path,) = re.findall(r"http://localhost:8000(/invitations/\S+)", str(message.body))
    return str(path)


def token_of(path: str) -> str:
    return path.split("/")[2]


def test_an_invitation_is_accepted_by_whom_it_was_sent_to(
    team: Team, owner: User, make_person: MakePerson, sign_in: SignIn
) -> None:
    path = send(team, owner, email="New@Example.com", role=Role.ADMIN)
    client = sign_in(make_person(email="new@example.com"))
    assert b"Join Research" in client.get(path).content
    assert client.post(path)["Location"] == "/team/"
    assert b"<h1>Research</h1>" in client.get("/team/").content
    assert team.memberships.get(user__email="new@example.com").role == Role.ADMIN
    actions = list(AuditEntry.objects.filter(team=team).order_by("id").values_list("action", flat=True))
    assert actions == ["invitation.sent", "member.joined"]


def test_a_link_works_once(team: Team, owner: User, make_person: MakePerson, sign_in: SignIn) -> None:
    path = send(team, owner)
    person = make_person(email="new@example.com")
    client = sign_in(person)
    client.post(path)
    team.memberships.get(user=person).delete()
    answer = client.post(path)
    assert (answer.status_code, team.memberships.filter(user=person).exists()) == (410, False)


def test_another_address_is_told_and_not_let_in(
    team: Team, owner: User, make_person: MakePerson, sign_in: SignIn
) -> None:
    path = send(team, owner)
    client = sign_in(make_person(email="somebody.else@example.com"))
    page = client.get(path).content
    assert b"It was sent to new@example.com, but you are signed in as somebody.else@example.com" in page
    assert client.post(path).status_code == 403
    assert team.memberships.count() == 1


def test_a_second_address_of_the_same_person_counts(
    team: Team, owner: User, make_person: MakePerson, sign_in: SignIn
) -> None:
    person = make_person(email="mei@example.com")
    EmailAddress.objects.create(user=person, email="New@example.com", verified=True)
    assert sign_in(person).post(send(team, owner)).status_code == 302


def test_an_address_that_one_only_says_to_have_does_not_count(
    team: Team, owner: User, make_person: MakePerson, sign_in: SignIn
) -> None:
    """Whoever was passed the link on could add the address it was sent to."""
    person = make_person(email="mei@example.com")
    EmailAddress.objects.create(user=person, email="new@example.com", verified=False)
    assert sign_in(person).post(send(team, owner)).status_code == 403
    assert not team.memberships.filter(user=person).exists()


def test_an_expired_and_a_revoked_link_say_so(team: Team, owner: User, sign_in: SignIn, client: Client) -> None:
    expired = send(team, owner)
    Invitation.objects.update(expires_at=timezone.now())
    answer = client.get(expired)
    assert (answer.status_code, b"has expired" in answer.content) == (410, True)

    revoked = send(team, owner, email="other@example.com")
    found = find_invitation(token_of(revoked))
    assert found
    sign_in(owner, team=team).post(f"/team/invitations/{found.pk}/revoke/")
    answer = client.get(revoked)
    assert (answer.status_code, b"was withdrawn" in answer.content) == (410, True)


def test_a_second_invitation_replaces_the_first(team: Team, owner: User, client: Client) -> None:
    first, second = send(team, owner), send(team, owner, role=Role.VIEWER)
    assert client.get(first).status_code == 410
    assert client.get(second).status_code == 200
    assert Invitation.objects.open().count() == 1


def test_an_unknown_link_is_not_found(client: Client, db: None) -> None:
    assert client.get("/invitations/nonsense/").status_code == 404


def test_the_token_is_nowhere_but_in_the_mail(team: Team, owner: User) -> None:
    token = token_of(send(team, owner))
    assert token not in repr(list(Invitation.objects.values())) + repr(list(AuditEntry.objects.values()))


def test_a_member_is_not_invited_again(team: Team, owner: User) -> None:
    with pytest.raises(InvitationRefused, match="member of the team already"):
        invite(team=team, email="Owner@example.com", role=Role.VIEWER, invited_by=owner, actor=ACTOR)


def test_a_link_changes_no_role_of_a_member(team: Team, owner: User, make_team: MakeTeam, sign_in: SignIn) -> None:
    path = send(team, owner, email="second@example.com", role=Role.VIEWER)
    EmailAddress.objects.create(user=owner, email="second@example.com", verified=True)
    assert sign_in(owner, team=team).post(path).status_code == 302
    assert team.memberships.get(user=owner).role == Role.OWNER


def test_open_invitations_are_bounded(team: Team, owner: User) -> None:
    later = timezone.now() + timedelta(days=1)
    Invitation.objects.bulk_create(
        Invitation(team=team, email=f"{number}@example.com", digest=str(number), expires_at=later)
        for number in range(MAX_PENDING)
    )
    with pytest.raises(InvitationRefused, match="Too many"):
        invite(team=team, email="one.more@example.com", role=Role.VIEWER, invited_by=owner, actor=ACTOR)


@pytest.mark.parametrize(("kind", "bound"), [("address", 5), ("person", 100)])
def test_mails_of_a_day_are_bounded(kind: str, bound: int, team: Team, owner: User) -> None:
    """However many teams one makes, and however often one takes the last invitation back."""

    def attempt() -> None:
        invite(team=team, email="new@example.com", role=Role.VIEWER, invited_by=owner, actor=ACTOR)

    others = [
        ("new@example.com", None) if kind == "address" else (f"{number}@example.com", owner) for number in range(bound)
    ]
    elsewhere = Team.objects.create(name="Elsewhere", time_zone="UTC")
    now = timezone.now()
    Invitation.objects.bulk_create(
        Invitation(team=elsewhere, email=email, digest=str(number), invited_by=by, expires_at=now, revoked_at=now)
        for number, (email, by) in enumerate(others)
    )
    with pytest.raises(InvitationRefused, match="within a day"):
        attempt()
    Invitation.objects.update(created_at=now - timedelta(days=1))
    attempt()


def test_whoever_lost_the_right_meanwhile_invites_nobody(team: Team, owner: User, make_person: MakePerson) -> None:
    admin = make_person()
    for role in (Role.MEMBER, Role.ADMIN):
        team.memberships.update_or_create(user=admin, defaults={"role": role})
        with pytest.raises(InvitationRefused, match="cannot invite"):
            invite(team=team, email="new@example.com", role=Role.OWNER, invited_by=admin, actor=ACTOR)
    with pytest.raises(InvitationRefused, match="cannot invite"):
        invite(team=team, email="new@example.com", role=Role.VIEWER, invited_by=make_person(), actor=ACTOR)
    assert mail.outbox == []


def test_the_log_of_a_failure_and_of_a_forgery_has_no_token(
    team: Team, owner: User, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = send(team, owner)
    forging = Client(enforce_csrf_checks=True)
    assert forging.post(path).status_code == 403
    monkeypatch.setattr("accounts.people_views.find_invitation", lambda token: 1 / 0)
    failing = Client(raise_request_exception=False)
    assert failing.get(path).status_code == 500
    assert [record.getMessage() for record in caplog.records if "/invitations/" in record.getMessage()] == [
        "Forbidden (CSRF cookie not set.): /invitations/…/",
        "Internal Server Error: /invitations/…/",
    ]
    assert token_of(path) not in caplog.text


class Unreachable(BaseEmailBackend):
    def send_messages(self, messages: object) -> int:
        raise SMTPException("no such mailbox")


def test_where_the_mail_cannot_be_sent_nobody_is_invited(
    team: Team, owner: User, settings: LazySettings, sign_in: SignIn
) -> None:
    settings.MAILERS = {"default": {"BACKEND": f"{__name__}.Unreachable"}}
    answer = sign_in(owner, team=team).post("/team/invitations/", {"email": "new@example.com", "role": "member"})
    assert (answer.status_code, b"could not be sent" in answer.content) == (422, True)
    assert not Invitation.objects.pending().exists()


def test_an_admin_invites_no_owner(team: Team, make_person: MakePerson, sign_in: SignIn) -> None:
    admin = make_person()
    team.memberships.create(user=admin, role=Role.ADMIN)
    answer = sign_in(admin, team=team).post("/team/invitations/", {"email": "new@example.com", "role": "owner"})
    assert (answer.status_code, Invitation.objects.count()) == (422, 0)


def sign_up(client: Client, email: str) -> str:
    """Where it leads; nowhere for whoever may not."""
    form = {"email": email, "password1": PASSWORD, "password2": PASSWORD}
    return client.post("/accounts/signup/", form).headers.get("Location", "")


def test_by_invitation_only_the_invited_address_signs_up_and_lands_in_the_team(
    team: Team, owner: User, settings: LazySettings
) -> None:
    settings.SIGN_UP = "invite"
    path = send(team, owner)
    stranger, invited = Client(), Client()
    sign_up(stranger, "new@example.com")
    invited.get(path)
    sign_up(invited, "somebody.else@example.com")
    assert set(User.objects.values_list("email", flat=True)) == {"owner@example.com"}
    assert sign_up(invited, "new@example.com") == "/invitations/"
    assert EmailAddress.objects.get(email="new@example.com").verified
    assert b"Join Research" in invited.get("/invitations/").content
    assert invited.post("/invitations/")["Location"] == "/team/"
    assert team.memberships.filter(user__email="new@example.com", role=Role.MEMBER).exists()
    # It was accepted: there is nothing more to come back to.
    assert invited.get("/invitations/")["Location"] == "/team/"


def test_a_closed_site_takes_not_even_the_invited_in(team: Team, owner: User, settings: LazySettings) -> None:
    settings.SIGN_UP = "closed"
    client = Client()
    client.get(send(team, owner))
    sign_up(client, "new@example.com")
    assert not User.objects.filter(email="new@example.com").exists()
