"""The table of rights, row by row."""

from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied

from accounts.keys import issue_key
from accounts.models import Membership, Role
from accounts.rights import RIGHTS, Right, may, require, revocable_keys
from tests.accounts.conftest import MakePerson, MakeTeam

ROWS = [
    (Role.OWNER, True, True, True),
    (Role.ADMIN, True, True, True),
    (Role.MEMBER, True, True, False),
    (Role.VIEWER, False, False, False),
]


def test_every_role_has_a_row() -> None:
    assert [row[0] for row in ROWS] == list(Role) == list(RIGHTS)


@pytest.mark.parametrize(("role", "creates", "revokes_own", "revokes_all"), ROWS)
def test_a_role_may_do_what_its_row_says(*, role: Role, creates: bool, revokes_own: bool, revokes_all: bool) -> None:
    membership = Membership(role=role)
    assert may(membership, Right.CREATE_KEYS) is creates
    assert may(membership, Right.REVOKE_OWN_KEYS) is revokes_own
    assert may(membership, Right.REVOKE_ALL_KEYS) is revokes_all


def test_a_missing_right_is_refused() -> None:
    require(Membership(role=Role.MEMBER), Right.CREATE_KEYS)
    with pytest.raises(PermissionDenied):
        require(Membership(role=Role.VIEWER), Right.CREATE_KEYS)


@pytest.mark.parametrize(("role", "creates", "revokes_own", "revokes_all"), ROWS)
def test_revocable_keys_are_those_of_the_row_and_never_another_teams(
    *,
    role: Role,
    creates: bool,
    revokes_own: bool,
    revokes_all: bool,
    make_person: MakePerson,
    make_team: MakeTeam,
) -> None:
    person, other = make_person(), make_person()
    team = make_team(**{role.value: person})
    own = issue_key(team=team, created_by=person, name="own").key
    others = issue_key(team=team, created_by=other, name="other's").key
    issue_key(team=make_team(name="Elsewhere"), created_by=person, name="elsewhere")
    expected = {key for key, revocable in ((own, revokes_own), (others, revokes_all)) if revocable}
    assert set(revocable_keys(team.memberships.get(user=person))) == expected
