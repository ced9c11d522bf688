"""People and teams for the tests of accounts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from django.core.cache import cache
from django.test import Client

from accounts.models import Membership, Role, Team, User
from accounts.teams import personal_team
from tests.secrecy import is_secret

PASSWORD = is_secret("violet-harbour-42")

type MakePerson = Callable[..., User]
type MakeTeam = Callable[..., Team]
type SignIn = Callable[..., Client]


@pytest.fixture(autouse=True)
def nobody_is_throttled() -> None:
    """Throttles count in the cache, which outlives a test: many tests sign in within a minute from one address."""
    cache.clear()


@pytest.fixture
def make_person(db: None) -> MakePerson:
    numbers = count(1)

    def make(*, email: str = "", password: str | None = None) -> User:
        return User.objects.create_user(email or f"person{next(numbers)}@example.com", password)

    return make


@pytest.fixture
def make_team(db: None) -> MakeTeam:
    def make(*, name: str = "Research", **roles: User) -> Team:
        """`make_team(owner=mei, viewer=tom)`"""
        team = Team.objects.create(name=name, time_zone="Asia/Shanghai")
        for role, person in roles.items():
            Membership.objects.create(team=team, user=person, role=Role(role))
        return team

    return make


@pytest.fixture
def sign_in() -> SignIn:
    """A browser of that person, working in the team (his own without one)."""

    def make(person: User, *, team: Team | None = None) -> Client:
        client = Client()
        client.force_login(person)
        session = client.session
        session["team_id"] = (team or personal_team(user=person)).pk
        session.save()
        return client

    return make
