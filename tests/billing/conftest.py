"""A team with a person in it, for the tests of pages."""

from __future__ import annotations

import pytest
from django.test import Client

from accounts.models import Team, User
from accounts.teams import personal_team


@pytest.fixture
def person(db: None) -> User:
    return User.objects.create_user("mei@example.com", name="Mei")


@pytest.fixture
def team(person: User) -> Team:
    """The person's own; its days are those of Kathmandu (UTC+05:45)."""
    team = personal_team(user=person)
    team.time_zone = "Asia/Kathmandu"
    team.save()
    return team


@pytest.fixture
def browser(person: User, team: Team) -> Client:
    client = Client()
    client.force_login(person)
    return client
