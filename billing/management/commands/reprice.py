"""Charge a period anew by the rate card of now."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.pricing import format_points
from billing.repricing import Order, RepricingError, reprice


def moment(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no date or time like 2026-11-29 or 2026-11-29T12:00+08:00") from error
    return at if at.tzinfo else at.replace(tzinfo=UTC)


class Command(BaseCommand):
    help = (
        "Charge the requests that began in a period by the rates that the card now has for it: unpriced ones whose "
        "rate was entered since, and all others where a rate was entered with an earlier date. Shows the difference "
        "by team and model. Charges stay as they are; the difference is booked as corrections and added to the "
        "rollups, with who and why. Try --dry-run first. Safe to repeat and to break off."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--from", dest="start", type=moment, required=True, help="begin, included (UTC by itself)")
        parser.add_argument("--to", dest="end", type=moment, required=True, help="end, not included")
        parser.add_argument("--model", default="", help="this model alone")
        parser.add_argument("--dry-run", action="store_true", help="show the difference, book nothing")
        parser.add_argument("--reason", default="", help="kept with the corrections")
        parser.add_argument("--by", default="", help="who asks for it; the account of the machine without it")

    def handle(self, *args: Any, start: datetime, end: datetime, dry_run: bool, **options: Any) -> None:
        by = options["by"] or f"{getpass.getuser()} (command line)"
        order = Order(start, end, by=by, model=options["model"], reason=options["reason"])
        try:
            outcome = reprice(order, dry_run=dry_run)
        except RepricingError as error:
            raise CommandError(str(error)) from error
        for (team_id, model), difference in sorted(outcome.differences.items()):
            before, after = format_points(difference.before_ppt), format_points(difference.after_ppt)
            self.stdout.write(
                f"team {team_id} {model}: {difference.requests} requests, {before} → {after} points"
                f" ({_signed(difference.delta_ppt)})"
            )
        for id in outcome.failed:
            self.stdout.write(f"{id} cannot be priced")
        total = _signed(sum(difference.delta_ppt for difference in outcome.differences.values()))
        self.stdout.write(f"Difference: {total} points; " + ("nothing was booked." if dry_run else "booked."))


def _signed(amount_ppt: int) -> str:
    return ("+" if amount_ppt > 0 else "") + format_points(amount_ppt)
