"""How a person is called on screen."""

from __future__ import annotations

from accounts.models import User


def display_name(user: User) -> str:
    return str(user)
