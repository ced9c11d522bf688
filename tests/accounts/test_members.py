"""Joining, leaving, removing, transferring: the last owner stays, and keys follow the choice that was made."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.conf import LazySettings

from accounts import key_epoch
from accounts.audit import Actor
from accounts.invitations import invite
from accounts.keys import digest_of, find_key, issue_key
from accounts.members import (
    KeysOfLeaver,
    LastOwner,
    MembersChanged,
    change_role,
    remove_member,
    sole_ownerships,
    transfer_ownership,
)
from accounts.models import ApiKey, AuditEntry, Invitation, Membership, Role, Team, User
from tests.accounts.conftest import MakePerson, MakeTeam, SignIn

OWNER = Actor(1, "owner", "203.0.113.9")


@pytest.fixture
def people(make_person: MakePerson) -> dict[str, User]:
    return {role.value: make_person(email=f"{role}@example.com") for role in Role}


@pytest.fixture
def team(people: dict[str, User], make_team: MakeTeam) -> Team:
    return make_team(**people)


def membership(team: Team, user: User) -> Membership:
    return Membership.objects.get(team=team, user=user)


def roles(team: Team) -> dict[str, str]:
    return dict(team.memberships.values_list("user__email", "role"))


def last_action() -> tuple[str, str]:
    entry = AuditEntry.objects.order_by("id").last()
    assert entry
    return entry.action, entry.object_name


def test_the_last_owner_can_be_neither_demoted_nor_removed(team: Team, people: dict[str, User]) -> None:
    owner = membership(team, people["owner"])
    with pytest.raises(LastOwner):
        change_role(membership=owner, role=Role.ADMIN, actor=OWNER)
    with pytest.raises(LastOwner):
        remove_member(membership=owner, keys=KeysOfLeaver.REVOKE, actor=OWNER)
    assert roles(team)["owner@example.com"] == "owner"


def test_with_a_second_owner_the_first_may_go(team: Team, people: dict[str, User]) -> None:
    change_role(membership=membership(team, people["member"]), role=Role.OWNER, actor=OWNER)
    assert last_action() == ("member.role", "member@example.com")
    remove_member(membership=membership(team, people["owner"]), keys=KeysOfLeaver.REVOKE, actor=OWNER)
    assert "owner@example.com" not in roles(team)


def test_ownership_is_transferred_in_one_step(team: Team, people: dict[str, User]) -> None:
    transfer_ownership(owner=membership(team, people["owner"]), to=membership(team, people["viewer"]), actor=OWNER)
    assert (roles(team)["owner@example.com"], roles(team)["viewer@example.com"]) == ("admin", "owner")
    with pytest.raises(MembersChanged):
        transfer_ownership(owner=membership(team, people["owner"]), to=membership(team, people["admin"]), actor=OWNER)


def test_the_keys_of_a_removed_member_are_refused_from_then_on(team: Team, people: dict[str, User]) -> None:
    leaver = people["member"]
    secret = issue_key(team=team, created_by=leaver, name="his").secret
    kept = issue_key(team=team, created_by=people["admin"], name="another's").secret
    elsewhere = issue_key(team=leaver.personal_team, created_by=leaver, name="his own team's").secret
    before = key_epoch.local()
    remove_member(membership=membership(team, leaver), keys=KeysOfLeaver.REVOKE, actor=OWNER)
    assert key_epoch.local() != before
    assert find_key(digest_of(secret)) is None
    assert find_key(digest_of(kept))
    assert find_key(digest_of(elsewhere))
    actions = list(AuditEntry.objects.filter(team=team).order_by("-id").values_list("action", flat=True)[:2])
    assert actions == ["member.removed", "key.revoked"]


def test_keys_handed_to_the_team_go_on_and_are_nobodys(team: Team, people: dict[str, User]) -> None:
    secret = issue_key(team=team, created_by=people["member"], name="his").secret
    remove_member(membership=membership(team, people["member"]), keys=KeysOfLeaver.HAND_OVER, actor=OWNER)
    found = find_key(digest_of(secret))
    assert found
    assert found.created_by is None


def test_removing_by_the_page_asks_and_revokes_without_a_choice(
    team: Team, people: dict[str, User], sign_in: SignIn
) -> None:
    issue_key(team=team, created_by=people["member"], name="nightly batch")
    client = sign_in(people["owner"], team=team)
    address = f"/team/members/{membership(team, people['member']).pk}/remove/"
    assert b"nightly batch" in client.get(address).content
    assert client.post(address).status_code == 302
    assert ApiKey.objects.usable().count() == 0
    assert "member@example.com" not in roles(team)


def test_an_admin_removes_no_owner_and_makes_none(team: Team, people: dict[str, User], sign_in: SignIn) -> None:
    client = sign_in(people["admin"], team=team)
    owner, member = membership(team, people["owner"]), membership(team, people["member"])
    assert client.post(f"/team/members/{owner.pk}/remove/").status_code == 403
    assert client.post(f"/team/members/{owner.pk}/role/", {"role": "viewer"}).status_code == 403
    assert client.post(f"/team/members/{member.pk}/role/", {"role": "owner"}).status_code == 403
    assert client.post(f"/team/members/{member.pk}/role/", {"role": "viewer"}).status_code == 302
    assert (roles(team)["owner@example.com"], roles(team)["member@example.com"]) == ("owner", "viewer")


def test_the_last_owner_is_told_that_he_cannot_leave(team: Team, people: dict[str, User], sign_in: SignIn) -> None:
    answer = sign_in(people["owner"], team=team).post("/team/leave/")
    assert answer.status_code == 409
    assert b"last owner" in answer.content
    assert sole_ownerships(people["owner"]) == [team]


def test_whoever_is_alone_in_a_team_closes_it_by_leaving(
    people: dict[str, User], make_team: MakeTeam, sign_in: SignIn
) -> None:
    team = make_team(name="Mistake", owner=people["owner"])
    secret = issue_key(team=team, created_by=people["owner"], name="batch").secret
    others = issue_key(team=team, created_by=None, name="the team's").secret
    invite(team=team, email="new@example.com", role=Role.OWNER, invited_by=people["owner"], actor=OWNER)
    client = sign_in(people["owner"], team=team)
    assert b"leaving closes it" in client.get("/team/leave/").content
    client.post("/team/leave/", {"keys": "hand_over"})
    assert roles(team) == {}
    assert find_key(digest_of(secret)) is find_key(digest_of(others)) is None
    assert not Invitation.objects.pending().exists()


def test_ones_own_team_is_not_left_while_one_is_alone_in_it(people: dict[str, User], sign_in: SignIn) -> None:
    """Else a new one with the site's points would be had each time."""
    client = sign_in(people["viewer"])
    page = client.get("/team/leave/").content
    assert b"This team is your own" in page
    assert b'name="team_shown"' not in page
    assert client.post("/team/leave/").status_code == 409
    assert roles(people["viewer"].personal_team) == {"viewer@example.com": "owner"}


def test_leaving_leads_to_another_team_and_takes_ones_keys_along(
    team: Team, people: dict[str, User], sign_in: SignIn
) -> None:
    secret = issue_key(team=team, created_by=people["member"], name="his").secret
    client = sign_in(people["member"], team=team)
    assert client.post("/team/leave/", {"keys": "revoke"}).status_code == 302
    assert b"<h1>member</h1>" in client.get("/team/").content
    assert find_key(digest_of(secret)) is None
    assert last_action() == ("member.left", "member@example.com")


def test_a_viewer_who_leaves_keeps_no_key_alive(team: Team, people: dict[str, User], sign_in: SignIn) -> None:
    secret = issue_key(team=team, created_by=people["viewer"], name="from better days").secret
    sign_in(people["viewer"], team=team).post("/team/leave/", {"keys": "hand_over"})
    assert find_key(digest_of(secret)) is None


def test_a_removed_member_sees_the_team_no_more_at_the_next_page(
    team: Team, people: dict[str, User], sign_in: SignIn
) -> None:
    client = sign_in(people["member"], team=team)
    assert b"<h1>Research</h1>" in client.get("/team/").content
    remove_member(membership=membership(team, people["member"]), keys=KeysOfLeaver.REVOKE, actor=OWNER)
    assert b"<h1>member</h1>" in client.get("/team/").content


def test_one_switches_between_ones_own_teams_only(
    team: Team, people: dict[str, User], make_team: MakeTeam, sign_in: SignIn
) -> None:
    foreign = make_team(name="Elsewhere")
    client = sign_in(people["viewer"])
    assert client.post("/team/switch/", {"team": foreign.pk, "next": "/keys/7/"}).status_code == 404
    answer = client.post("/team/switch/", {"team": team.pk, "next": "/keys/7/"})
    assert answer["Location"] == "/keys/"
    assert b"<h1>Research</h1>" in client.get("/team/").content
    assert client.post("/team/switch/", {"team": "x", "next": "//evil.example"}).status_code == 404


def test_a_new_team_is_ones_own(people: dict[str, User], sign_in: SignIn) -> None:
    client = sign_in(people["viewer"])
    assert client.post("/team/new/", {"name": "Lab"})["Location"] == "/team/"
    made = Team.objects.get(name="Lab")
    assert roles(made) == {"viewer@example.com": "owner"}
    assert b"<h1>Lab</h1>" in client.get("/team/").content


def test_a_site_bounds_how_many_teams_a_person_makes(
    people: dict[str, User], sign_in: SignIn, settings: LazySettings
) -> None:
    """Each has the site's points: without a bound whoever makes enough of them has no limit."""
    settings.TEAMS_PER_PERSON = 2
    client = sign_in(people["viewer"])
    answers = [client.post("/team/new/", {"name": f"Lab {number}"}) for number in range(3)]
    assert [answer.status_code for answer in answers] == [302, 302, 409]
    assert b"as many teams as this site allows" in answers[-1].content
    assert Team.objects.filter(name__startswith="Lab").count() == 2
    User.objects.filter(pk=people["viewer"].pk).update(is_staff=True)
    assert client.post("/team/new/", {"name": "Lab 4"}).status_code == 302


def test_whoever_is_removed_from_the_team_that_was_his_own_does_not_come_back_as_its_owner(
    people: dict[str, User], sign_in: SignIn
) -> None:
    person, other = people["member"], people["owner"]
    team = person.personal_team
    Membership.objects.exclude(team=team).filter(user=person).delete()
    team.memberships.create(user=other, role=Role.OWNER)
    remove_member(membership=membership(team, person), keys=KeysOfLeaver.REVOKE, actor=OWNER)
    client = sign_in(User.objects.get(pk=person.pk))
    assert client.get("/team/").status_code == 200
    assert roles(team) == {"owner@example.com": "owner"}
    mine = person.memberships.get().team
    assert mine != team
    assert roles(mine) == {"member@example.com": "owner"}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda his, other: remove_member(membership=his, keys=KeysOfLeaver.REVOKE, actor=OWNER), set()),
        (lambda his, other: change_role(membership=his, role=Role.MEMBER, actor=OWNER), set()),
        (lambda his, other: change_role(membership=his, role=Role.ADMIN, actor=OWNER), {"viewer2@example.com"}),
        (lambda his, other: transfer_ownership(owner=his, to=other, actor=OWNER), {"viewer2@example.com"}),
    ],
    ids=["removed", "made a member", "made an admin", "gave the team away"],
)
def test_what_somebody_may_no_longer_offer_is_withdrawn(
    change: Callable[[Membership, Membership], None], left: set[str], team: Team, people: dict[str, User]
) -> None:
    """Else he would let himself in again, by another address."""
    his = membership(team, people["admin"])
    change_role(membership=his, role=Role.OWNER, actor=OWNER)
    for email, role in (("owner2@example.com", Role.OWNER), ("viewer2@example.com", Role.VIEWER)):
        invite(team=team, email=email, role=role, invited_by=people["admin"], actor=OWNER)
    invite(team=team, email="another's@example.com", role=Role.VIEWER, invited_by=people["owner"], actor=OWNER)
    change(his, membership(team, people["viewer"]))
    pending = set(Invitation.objects.pending().values_list("email", flat=True))
    assert pending == left | {"another's@example.com"}
    assert AuditEntry.objects.filter(action="invitation.revoked").count() == 2 - len(left)


def test_what_was_decided_by_another_role_is_not_done(team: Team, people: dict[str, User]) -> None:
    """An admin saw a member; an owner made him an owner meanwhile."""
    seen = membership(team, people["member"])
    change_role(membership=membership(team, people["member"]), role=Role.OWNER, actor=OWNER)
    with pytest.raises(MembersChanged):
        remove_member(membership=seen, keys=KeysOfLeaver.REVOKE, actor=OWNER)
    with pytest.raises(MembersChanged):
        change_role(membership=seen, role=Role.VIEWER, actor=OWNER)
    assert roles(team)["member@example.com"] == "owner"


def test_leaving_twice_leaves_one_team(
    team: Team, people: dict[str, User], make_team: MakeTeam, sign_in: SignIn
) -> None:
    """A second click, or another tab: the page showed a team that is no longer the one worked in."""
    person = people["member"]
    other = make_team(name="Elsewhere", owner=people["owner"], member=person)
    person.personal_team.memberships.all().delete()
    client = sign_in(person, team=team)
    page = client.get("/team/leave/").content.decode()
    (shown,) = re.findall(r'name="team_shown" value="(\d+)"', page)
    for _ in range(2):
        assert client.post("/team/leave/", {"team_shown": shown})["Location"] == "/team/"
    assert "member@example.com" not in roles(team)
    assert "member@example.com" in roles(other)
    assert b"in another team by now" in client.get("/team/").content


@pytest.mark.parametrize(
    ("page", "address", "form"),
    [
        ("/team/", "/team/invitations/", {"email": "new@example.com", "role": "viewer"}),
        ("/team/settings/", "/team/settings/", {"name": "Renamed", "time_zone": "Europe/Berlin"}),
        ("/keys/new/", "/keys/new/", {"name": "nightly batch"}),
        (
            "/team/endpoints/new/",
            "/team/endpoints/new/",
            {"name": "x", "slug": "x", "base_url": "http://127.0.0.1:9/v1"},
        ),
        ("/usage/statements/", "/usage/statements/readers/", {}),
    ],
)
def test_a_form_of_one_team_does_nothing_to_another(
    page: str,
    address: str,
    form: dict[str, str],
    team: Team,
    people: dict[str, User],
    make_team: MakeTeam,
    sign_in: SignIn,
) -> None:
    other = make_team(name="Elsewhere", owner=people["owner"])
    client = sign_in(people["owner"], team=team)
    shown = set(re.findall(r'name="team_shown" value="(\d+)"', client.get(page).content.decode()))
    assert shown == {str(team.pk)}
    client.post("/team/switch/", {"team": other.pk})
    before = AuditEntry.objects.count()
    assert client.post(address, form | {"team_shown": str(team.pk)})["Location"] == "/team/"
    htmx = client.post(address, form | {"team_shown": str(team.pk)}, headers={"HX-Request": "true"})
    assert htmx["HX-Redirect"] == "/team/"
    assert AuditEntry.objects.count() == before
    other.refresh_from_db()
    assert (other.name, ApiKey.objects.count(), Invitation.objects.count()) == ("Elsewhere", 0, 0)
