"""Write the rollups anew from the ledger."""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import date
from typing import Any

from django.core.management.base import BaseCommand

from billing.rebuilding import rebuild_rollups


class Command(BaseCommand):
    help = (
        "Work out the quarter-hour sums again from records, charges and corrections, and put right those that differ. "
        "A team's day at a time, in a transaction that raters wait for; safe to repeat and to break off. Days whose "
        "records were pruned are left as they are."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="start", type=date.fromisoformat, help="first day (UTC), YYYY-MM-DD")
        parser.add_argument("--to", dest="end", type=date.fromisoformat, help="last day (UTC), included")

    def handle(self, *args: Any, start: date | None, end: date | None, **options: Any) -> None:
        days = wrong = kept = 0
        for rebuilt in rebuild_rollups(start=start, end=end):
            days += 1
            kept += rebuilt.kept
            wrong += len(rebuilt.wrong)
            if rebuilt.wrong:
                self.stdout.write(f"{rebuilt.day} team {rebuilt.team_id}: {len(rebuilt.wrong)} sums put right")
        self.stdout.write(f"{days} days looked at, {wrong} sums put right, {kept} days left: their records are pruned.")
