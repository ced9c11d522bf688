"""`manage.py issue_key`."""

from __future__ import annotations

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.keys import issue_key
from accounts.models import Team, User


class Command(BaseCommand):
    help = (
        "Make an API key for a team and print its secret, which is shown this once.\n\n"
        "The secret alone goes to standard output, so a script can capture it:\n"
        '    KEY=$(manage.py issue_key --team Research --name "nightly batch")'
    )

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--team", required=True, help="name or number of the team")
        parser.add_argument("--name", required=True, help="what the key is called in lists and reports")
        parser.add_argument("--email", help="member on whose behalf the key is made; nobody's without it")

    def handle(self, *, team: str, name: str, email: str | None, **options: Any) -> None:
        chosen = _team(team)
        issued = issue_key(team=chosen, created_by=_member(chosen, email) if email else None, name=name)
        self.stderr.write(f"Key {issued.key.pk} ({issued.key.hint}) of team {chosen}:")
        self.stdout.write(issued.secret)


def _team(wanted: str) -> Team:
    found = list(Team.objects.filter(name=wanted)[:2])
    if not found and wanted.isdecimal():
        found = list(Team.objects.filter(pk=int(wanted)))
    if len(found) == 1:
        return found[0]
    if found:
        raise CommandError(f"Several teams are called {wanted!r}; give the number of one.")
    raise CommandError(f"No team is called {wanted!r}.")


def _member(team: Team, email: str) -> User:
    member = User.objects.filter(memberships__team=team, email__iexact=email).first()
    if member is None:
        raise CommandError(f"{email} is not a member of {team}.")
    return member
