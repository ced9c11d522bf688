"""Two at once: whatever each of them saw, the team keeps an owner, and who was removed keeps no key.

Runs on SQLite as on PostgreSQL (`tests/billing/test_on_postgresql.py`), whose locks are what is tested.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.conf import LazySettings
from django.core import mail
from django.core.exceptions import PermissionDenied
from django.db import connection

from accounts.account_end import delete_account
from accounts.audit import SYSTEM, Action, Actor
from accounts.invitations import InvitationRefused, accept, find_invitation, invite
from accounts.keys import KeyChanged, issue_key, rotate_key
from accounts.members import KeysOfLeaver, LastOwner, MembersChanged, change_role, remove_member, transfer_ownership
from accounts.models import ApiKey, AuditEntry, Membership, Role, Team, User
from accounts.teams import TooManyTeams, create_team
from tests.accounts.conftest import MakePerson, MakeTeam

pytestmark = pytest.mark.django_db(transaction=True)

# Long enough for a thread to come to where it writes; where locks hold, this is what each race waits for.
MEETING_SECONDS = 0.5
REFUSALS = (LastOwner, MembersChanged, InvitationRefused, KeyChanged, PermissionDenied, TooManyTeams)


class Meeting:
    """Holds a thread before the first thing it writes, until the others have decided too or evidently cannot."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self._barrier = barrier
        self._met = False

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if not self._met and sql.startswith(("INSERT", "UPDATE", "DELETE")):
            self._met = True
            with suppress(threading.BrokenBarrierError):
                self._barrier.wait(MEETING_SECONDS)
        return execute(sql, params, many, context)


def at_once(*acts: Callable[[], object]) -> list[str]:
    """What became of each: "done", or the name of its refusal."""
    barrier = threading.Barrier(len(acts))
    outcomes = [""] * len(acts)

    def run(number: int, act: Callable[[], object]) -> None:
        try:
            with connection.execute_wrapper(Meeting(barrier)):
                act()
            outcomes[number] = "done"
        except REFUSALS as refusal:
            outcomes[number] = type(refusal).__name__
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number, act)) for number, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def membership(team: Team, user: User) -> Membership:
    return Membership.objects.get(team=team, user=user)


def actor(user: User) -> Actor:
    return Actor(user.pk, str(user))


def removal(of: Membership, by: User) -> Callable[[], object]:
    return partial(remove_member, membership=of, keys=KeysOfLeaver.REVOKE, actor=actor(by))


def end_of_account(user: User) -> Callable[[], object]:
    return partial(delete_account, user=user, name="Gone", keys=KeysOfLeaver.REVOKE, actor=actor(user))


@pytest.fixture
def two(make_person: MakePerson) -> tuple[User, User]:
    return make_person(), make_person()


@pytest.fixture
def owned_by_two(two: tuple[User, User], make_team: MakeTeam) -> Team:
    team = make_team(owner=two[0], member=two[1])
    team.memberships.update(role=Role.OWNER)
    return team


def owners(team: Team) -> int:
    return team.memberships.filter(role=Role.OWNER).count()


def test_of_two_owners_who_remove_each_other_one_stays(two: tuple[User, User], owned_by_two: Team) -> None:
    first, second = (membership(owned_by_two, user) for user in two)
    outcomes = at_once(removal(second, two[0]), removal(first, two[1]))
    assert sorted(outcomes) == ["LastOwner", "done"]
    assert owners(owned_by_two) == 1


def test_of_two_owners_who_step_down_and_leave_one_stays(two: tuple[User, User], owned_by_two: Team) -> None:
    first, second = (membership(owned_by_two, user) for user in two)
    step_down = partial(change_role, membership=first, role=Role.ADMIN, actor=actor(two[0]))
    assert sorted(at_once(step_down, removal(second, two[1]))) == ["LastOwner", "done"]
    assert owners(owned_by_two) == 1


def test_of_two_owners_who_end_their_accounts_one_stays(two: tuple[User, User], owned_by_two: Team) -> None:
    owned_by_two.memberships.create(user=User.objects.create_user("member@example.com"), role=Role.MEMBER)

    assert sorted(at_once(*map(end_of_account, two))) == ["LastOwner", "done"]
    assert owners(owned_by_two) == 1


def test_ownership_is_given_to_one_of_two(make_person: MakePerson, make_team: MakeTeam) -> None:
    people = {role.value: make_person() for role in Role}
    team = make_team(**people)
    owner, admin, member = (membership(team, people[role]) for role in ("owner", "admin", "member"))

    acts = [partial(transfer_ownership, owner=owner, to=to, actor=SYSTEM) for to in (admin, member)]
    assert sorted(at_once(*acts)) == ["MembersChanged", "done"]
    assert owners(team) == 1


def test_an_admin_does_not_remove_somebody_who_is_being_made_an_owner(
    make_person: MakePerson, make_team: MakeTeam
) -> None:
    people = {role.value: make_person() for role in Role}
    team = make_team(**people)
    member = membership(team, people["member"])
    seen = membership(team, people["member"])
    promotion = partial(change_role, membership=seen, role=Role.OWNER, actor=SYSTEM)
    outcomes = at_once(promotion, removal(member, people["admin"]))
    # Whichever came first: an owner was not removed by an admin.
    assert outcomes in (["done", "MembersChanged"], ["MembersChanged", "done"])
    assert AuditEntry.objects.filter(action__in=[Action.MEMBER_ROLE, Action.MEMBER_REMOVED]).count() == 1


def test_nobody_joins_a_team_whose_last_owner_ends_his_account(two: tuple[User, User], make_team: MakeTeam) -> None:
    owner, invited = two
    # The only team he is in, so that its end is the first thing that is written.
    owner.memberships.all().delete()
    team = make_team(owner=owner)
    invite(team=team, email=invited.email, role=Role.ADMIN, invited_by=owner, actor=SYSTEM)
    found = find_invitation(str(mail.outbox[0].body).split("/invitations/")[1].split("/")[0])
    assert found
    at_once(partial(accept, invitation=found, user=invited, actor=actor(invited)), end_of_account(owner))
    assert team.memberships.count() in (0, 2)
    assert owners(team) == team.memberships.count() / 2


def test_no_key_is_made_by_somebody_who_is_being_removed(two: tuple[User, User], make_team: MakeTeam) -> None:
    owner, member = two
    team = make_team(owner=owner, member=member)
    his = membership(team, member)
    at_once(partial(issue_key, team=team, created_by=member, name="late", by=his), removal(his, owner))
    assert not ApiKey.objects.usable().filter(team=team).exists()
    with pytest.raises(PermissionDenied):
        issue_key(team=team, created_by=member, name="later", by=his)


def test_of_two_rotations_at_once_one_is_refused(make_team: MakeTeam) -> None:
    key = issue_key(team=make_team(), created_by=None, name="batch").key
    seen = [ApiKey.objects.get(pk=key.pk) for _ in "ab"]
    outcomes = at_once(*(partial(rotate_key, key=one, grace_seconds=60) for one in seen))
    assert sorted(outcomes) == ["KeyChanged", "done"]


def test_one_link_lets_one_of_two_in(two: tuple[User, User], make_team: MakeTeam) -> None:
    """The same person in two browsers."""
    owner, invited = two
    team = make_team(owner=owner)
    invite(team=team, email=invited.email, role=Role.VIEWER, invited_by=owner, actor=SYSTEM)
    found = find_invitation(str(mail.outbox[0].body).split("/invitations/")[1].split("/")[0])
    assert found
    at_once(*[partial(accept, invitation=found, user=invited, actor=actor(invited))] * 2)
    assert AuditEntry.objects.filter(action=Action.MEMBER_JOINED).count() == 1
    assert team.memberships.filter(user=invited).count() == 1


def test_teams_are_counted_one_after_another(make_person: MakePerson, settings: LazySettings) -> None:
    settings.TEAMS_PER_PERSON = 1
    person = make_person()
    outcomes = at_once(*[partial(create_team, name="Lab", owner=person, actor=actor(person))] * 2)
    assert sorted(outcomes) == ["TooManyTeams", "done"]
    assert Team.objects.filter(name="Lab").count() == 1
