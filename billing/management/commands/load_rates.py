"""Fill the rate card from a file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from billing.rates import BUILT_IN_RATES, RateFileError, load_rates


class Command(BaseCommand):
    help = "Add the rates of a TOML file to the rate card. Safe to repeat: what is there already stays as it is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file", nargs="?", type=Path, default=BUILT_IN_RATES, help="a file like billing/rates.toml (the default)"
        )

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        try:
            loaded = load_rates(file)
        except RateFileError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{loaded.added} rates added, {loaded.unchanged} unchanged.")
