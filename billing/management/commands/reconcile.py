"""Prove that the ledger adds up, or say where it does not."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.reconciliation import backlog, reconcile


class Command(BaseCommand):
    help = (
        "Compare records, charges, rollups and exports, each worked out on its own, and print every difference with "
        "the ids of its requests. Exits with 1 if there is one. Safe at any time: it only reads, and what is not "
        "rated yet is left out. Without dates it covers everything, and the sum of all charges as well; days whose "
        "records were pruned are compared by what they came to when they were."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="start", type=date.fromisoformat, help="first day (UTC), YYYY-MM-DD")
        parser.add_argument("--to", dest="end", type=date.fromisoformat, help="last day (UTC), included")

    def handle(self, *args: Any, start: date | None, end: date | None, **options: Any) -> None:
        count = 0
        for difference in reconcile(start=start, end=end):
            count += 1
            self.stdout.write(str(difference))
        left = backlog()
        since = f", the oldest since {left.oldest:%Y-%m-%d %H:%M:%S}" if left.oldest else ""
        self.stdout.write(
            f"{left.waiting} records wait to be rated{since}; {left.set_aside} set aside, {left.unpriced} unpriced."
        )
        if count:
            raise CommandError(f"{count} differences.")
        self.stdout.write("No difference.")
