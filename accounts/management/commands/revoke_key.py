"""`manage.py revoke_key`."""

from __future__ import annotations

import sys
from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.key_epoch import NotTold
from accounts.keys import SECRET_PATTERN, find_key_by_secret, revoke_key
from accounts.models import ApiKey


class Command(BaseCommand):
    help = (
        "Revoke an API key: it is refused from the next request on, in every process.\n\n"
        "Name it by its number, or give the secret on standard input, where no process list\n"
        "and no shell history shows it:\n"
        "    manage.py revoke_key 12\n"
        "    manage.py revoke_key < leaked-key.txt"
    )

    def create_parser(self, *args: Any, **kwargs: Any) -> CommandParser:
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "id", nargs="?", type=int, help="number of the key; without it the secret is read from stdin"
        )

    def handle(self, *, id: int | None, **options: Any) -> None:
        key = _by_id(id) if id is not None else _by_secret(sys.stdin.read().strip())
        try:
            revoke_key(key=key)
        except NotTold:
            raise CommandError(
                f"Key {key.pk} is revoked, but Redis does not answer: processes that reach it may not have heard. "
                "Give the command again when it does."
            ) from None
        self.stdout.write(f"Key {key.pk} ({key.hint}, {key.name}) of team {key.team} is revoked.")


def _by_id(id: int) -> ApiKey:
    key = ApiKey.objects.filter(pk=id).first()
    if key is None:
        raise CommandError(f"There is no key {id}.")
    return key


def _by_secret(secret: str) -> ApiKey:
    if not SECRET_PATTERN.fullmatch(secret):
        raise CommandError("Standard input holds no key (rc- and 48 lowercase hex digits).")
    key = find_key_by_secret(secret)
    if key is None:
        raise CommandError("No key has that secret.")
    return key
