"""Prove that the ledger adds up, or say where it does not."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.counters import are_readable
from billing.reconciliation import backlog, reconcile


class Command(BaseCommand):
    help = (
        "Compare records, charges, rollups, exports and quota counters, each worked out on its own, and print every "
        "difference with the ids of its requests. Exits with 1 if there is one. Safe at any time: it only reads, and "
        "what is not rated yet is left out. Without dates it covers everything, and the sum of all charges as well; "
        "days whose records were pruned are compared by what they came to when they were. Counters are those of the "
        "periods that run now, where they are in Redis: one that differs is looked at again until web processes have "
        "had the time to correct it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="start", type=date.fromisoformat, help="first day (UTC), YYYY-MM-DD")
        parser.add_argument("--to", dest="end", type=date.fromisoformat, help="last day (UTC), included")

    def handle(self, *args: Any, start: date | None, end: date | None, **options: Any) -> None:
        count = 0
        for difference in reconcile(start=start, end=end):
            count += 1
            self.stdout.write(str(difference))
        if not end and not are_readable():
            self.stdout.write("The quota counters are the web process's own; it compares them itself (see /metrics).")
        left = backlog()
        since = f", the oldest since {left.oldest:%Y-%m-%d %H:%M:%S}" if left.oldest else ""
        self.stdout.write(
            f"{left.waiting} records wait to be rated{since}; {left.set_aside} set aside, {left.unpriced} unpriced."
        )
        if count:
            raise CommandError(f"{count} differences.")
        self.stdout.write("No difference.")
