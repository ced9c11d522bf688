"""Joining, leaving, removing, transferring: the last owner stays, and keys follow the choice that was made."""

from __future__ import annotations

import pytest

from accounts import key_epoch
from accounts.audit import Actor
from accounts.keys import digest_of, find_key, issue_key
from accounts.members import (
    KeysOfLeaver,
    LastOwner,
    NotAMember,
    change_role,
    remove_member,
    sole_ownerships,
    transfer_ownership,
)
from accounts.models import ApiKey, AuditEntry, Membership, Role, Team, User
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
    with pytest.raises(NotAMember):
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
