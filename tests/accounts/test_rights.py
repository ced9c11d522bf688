"""The table of rights, row by row, in code and in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied

from accounts.keys import issue_key
from accounts.models import Membership, Role
from accounts.rights import RIGHTS, Right, grantable_roles, manageable_keys, may, may_manage, require
from tests.accounts.conftest import MakePerson, MakeTeam

ROWS = {
    #                     owner  admin  member viewer
    Right.READ: (True, True, True, True),
    Right.USE_MODELS: (True, True, True, False),
    Right.CREATE_KEYS: (True, True, True, False),
    Right.MANAGE_OWN_KEYS: (True, True, True, False),
    Right.MANAGE_ALL_KEYS: (True, True, False, False),
    Right.MANAGE_MEMBERS: (True, True, False, False),
    Right.CHANGE_SETTINGS: (True, True, False, False),
    Right.READ_AUDIT: (True, True, False, False),
    Right.MANAGE_OWNERS: (True, False, False, False),
}
CELLS = [(role, right, ROWS[right][column]) for right in Right for column, role in enumerate(Role)]


def test_every_role_and_right_is_in_the_table() -> None:
    assert list(RIGHTS) == list(Role)
    assert list(ROWS) == list(Right)


@pytest.mark.parametrize(("role", "right", "granted"), CELLS)
def test_a_role_may_do_what_its_row_says(*, role: Role, right: Right, granted: bool) -> None:
    membership = Membership(role=role)
    assert may(membership, right) is granted
    if granted:
        require(membership, right)
    else:
        with pytest.raises(PermissionDenied):
            require(membership, right)


def test_the_docs_have_the_same_table() -> None:
    lines = [
        f"| {right.value} | " + " | ".join("yes" if may(Membership(role=role), right) else "–" for role in Role) + " |"
        for right in Right
    ]
    text = (Path(settings.BASE_DIR) / "docs/rights.md").read_text()
    assert "\n".join(["| | owner | admin | member | viewer |", "|---|---|---|---|---|", *lines]) in text


@pytest.mark.parametrize("role", Role)
def test_manageable_keys_are_those_of_the_row_and_never_another_teams(
    role: Role, make_person: MakePerson, make_team: MakeTeam
) -> None:
    person, other = make_person(), make_person()
    team = make_team(**{role.value: person})
    own = issue_key(team=team, created_by=person, name="own").key
    others = issue_key(team=team, created_by=other, name="other's").key
    issue_key(team=make_team(name="Elsewhere"), created_by=person, name="elsewhere")
    membership = team.memberships.get(user=person)
    expected = {
        key for key, right in ((own, Right.MANAGE_OWN_KEYS), (others, Right.MANAGE_ALL_KEYS)) if may(membership, right)
    }
    assert set(manageable_keys(membership)) == expected


def test_an_admin_gives_every_role_but_the_owners() -> None:
    assert grantable_roles(Membership(role=Role.OWNER)) == list(Role)
    assert grantable_roles(Membership(role=Role.ADMIN)) == [Role.ADMIN, Role.MEMBER, Role.VIEWER]
    assert grantable_roles(Membership(role=Role.MEMBER)) == grantable_roles(Membership(role=Role.VIEWER)) == []


def test_nobody_manages_himself_an_owner_above_him_or_another_team(
    make_person: MakePerson, make_team: MakeTeam
) -> None:
    owner, admin, member, stranger = (make_person() for _ in range(4))
    make_team(owner=owner, admin=admin, member=member)
    make_team(name="Elsewhere", member=stranger)
    of = {person: person.memberships.exclude(team__personal_of=person).get() for person in (owner, admin, member)}
    allowed = {(one, other) for one in of for other in of if may_manage(of[one], of[other])}
    assert allowed == {(owner, admin), (owner, member), (admin, member)}
    assert not may_manage(of[owner], stranger.memberships.exclude(team__personal_of=stranger).get())
