"""The first person of an empty installation."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from allauth.account.models import EmailAddress
from django.db import IntegrityError, transaction

from accounts.keys import issue_key
from accounts.models import User
from accounts.teams import personal_team

FIRST_OWNER = "owner@localhost"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Both secrets exist nowhere else: whoever asked shows them once."""

    email: str
    password: str = field(repr=False)
    secret: str = field(repr=False)


def first_owner(*, email: str = FIRST_OWNER) -> Bootstrap | None:
    """Make the owner (also staff of the installation), his team and a first key; None when anybody exists.

    Two processes may ask at once: SQLite lets one in at a time, and elsewhere the unique address
    turns the second away.
    """
    try:
        with transaction.atomic():
            return None if User.objects.exists() else _make(email)
    except IntegrityError:
        return None


def _make(email: str) -> Bootstrap:
    password = secrets.token_urlsafe(12)
    user = User.objects.create_superuser(email, password)
    EmailAddress.objects.create(user=user, email=user.email, primary=True, verified=True)
    issued = issue_key(team=personal_team(user=user), created_by=user, name="First key")
    return Bootstrap(email=user.email, password=password, secret=issued.secret)
