"""Remove old requests from the log."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from billing.cells import team_ids
from billing.retention import kept_from, prunable, prune


class Command(BaseCommand):
    help = (
        "Remove the request log's rows that are older than so many whole days (UTC), in batches. Charges, corrections "
        "and rollups stay, so no report changes; the single requests can then no longer be looked up, repriced or "
        "have their rollups rebuilt. What is not rated yet stays. Safe to repeat and to break off."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--keep-days", type=int, required=True, help="how many days stay, today not counted")
        parser.add_argument("--dry-run", action="store_true", help="count, remove nothing")

    def handle(self, *args: Any, keep_days: int, dry_run: bool, **options: Any) -> None:
        try:
            before = kept_from(keep_days, now=timezone.now())
        except ValueError as error:
            raise CommandError(str(error)) from error
        if dry_run:
            count = sum(prunable(before, team_id=team_id).count() for team_id in team_ids())
            self.stdout.write(f"{count} requests begun before {before:%Y-%m-%d} would be removed.")
        else:
            self.stdout.write(f"{prune(before)} requests begun before {before:%Y-%m-%d} were removed.")
