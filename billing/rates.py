"""The rate card: what each model's meters cost at a moment, and how a file of rates gets into it."""

from __future__ import annotations

import logging
import re
import tomllib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Self

from django.core.exceptions import ValidationError
from django.db import transaction

from billing.models import Meter, Rate
from billing.pricing import RateError, price_ppt

logger = logging.getLogger(__name__)
LOADED_BY = "load_rates"
BUILT_IN_RATES = Path(__file__).with_name("rates.toml")
FOREVER = datetime.max.replace(tzinfo=UTC)

type Row = tuple[str, str, Decimal, datetime]
"""Model, meter, rate, effective from."""


class _History(NamedTuple):
    """One model's moments of change, ascending, and what holds from each on."""

    moments: list[datetime]
    rates: list[dict[str, Decimal]]
    prices: list[dict[str, int]]


_NO_HISTORY = _History([], [], [])


def format_rate(rate: Decimal) -> str:
    """As it was entered, without exponent or idle zeros."""
    text = f"{rate:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_rate_of(rates: Mapping[str, Decimal], meter: str) -> str:
    """A meter's rate among a model's; a dash where it has none."""
    return format_rate(rates[meter]) if meter in rates else "–"


class Stretch(NamedTuple):
    """One model's prices (meter → picopoints a unit) from `begins_at` (included) to `ends_at` (not)."""

    model: str
    begins_at: datetime
    ends_at: datetime
    prices: Mapping[str, int]


class RateCard:
    """All rates there ever were, in memory. Small enough to be loaded anew for each batch."""

    def __init__(self, rows: Iterable[Row]) -> None:
        by_model: defaultdict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_model[row[0]].append(row)
        self._histories = {model: _history(rows) for model, rows in by_model.items()}

    @classmethod
    def load(cls) -> Self:
        return cls(Rate.objects.order_by().values_list("model", "meter", "rate", "effective_from"))

    def prices(self, model: str, at: datetime) -> Mapping[str, int]:
        """Meter → picopoints a unit; empty for a model that has no rate yet."""
        history, index = self._find(model, at)
        return history.prices[index] if history else {}

    def rates(self, model: str, at: datetime) -> Mapping[str, Decimal]:
        """Meter → rate as it was entered: points per million units, per page for pages."""
        history, index = self._find(model, at)
        return history.rates[index] if history else {}

    def since(self, model: str, at: datetime) -> datetime | None:
        """When the rates of that moment came into force."""
        history, index = self._find(model, at)
        return history.moments[index] if history else None

    def changes(self, model: str) -> Sequence[tuple[datetime, Mapping[str, Decimal]]]:
        """Each moment at which a rate of the model changes, the latest first, and the rates from then on."""
        history = self._histories.get(model, _NO_HISTORY)
        return [*zip(history.moments, history.rates, strict=True)][::-1]

    def stretches(self) -> Iterator[Stretch]:
        """The whole card in pieces that do not overlap."""
        for model, history in self._histories.items():
            ends = [*history.moments[1:], FOREVER]
            for begins_at, ends_at, prices in zip(history.moments, ends, history.prices, strict=True):
                yield Stretch(model, begins_at, ends_at, prices)

    def _find(self, model: str, at: datetime) -> tuple[_History | None, int]:
        history = self._histories.get(model)
        index = bisect_right(history.moments, at) - 1 if history else -1
        return (history, index) if index >= 0 else (None, 0)


def _history(rows: list[Row]) -> _History:
    history = _History([], [], [])
    for _model, meter, rate, moment in sorted(rows, key=lambda row: row[3]):
        try:
            price = price_ppt(rate, meter=meter)
        except RateError:
            # Only SQL by hand can have put it there; its requests show as unpriced.
            logger.exception("A rate of %s cannot be charged: %s", _model, rate)
            continue
        if not history.moments or history.moments[-1] != moment:
            history.moments.append(moment)
            history.rates.append(dict(history.rates[-1]) if history.rates else {})
            history.prices.append(dict(history.prices[-1]) if history.prices else {})
        history.rates[-1][meter] = rate
        history.prices[-1][meter] = price
    return history


def prices_at(model: str, moment: datetime) -> Mapping[str, int]:
    """Meter → picopoints a unit of one model at a moment."""
    rows = Rate.objects.filter(model=model).values_list("model", "meter", "rate", "effective_from")
    return RateCard(rows).prices(model, moment)


# -- files --------------------------------------------------------------------------------------


class RateFileError(ValueError):
    """The file says something that cannot be loaded; the message names file, line and what is wrong."""


class RateFile:
    """A TOML file of rates: `effective_from` and one table a model under `models`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            self.content = tomllib.loads(self.text, parse_float=Decimal)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise RateFileError(f"{path}: {error}") from error

    def rows(self) -> list[Row]:
        """Every rate of the file; raises `RateFileError` at the first that makes no sense."""
        if unknown := self.content.keys() - {"effective_from", "models"}:
            raise self.error(f"unknown key {min(unknown)!r}", key=min(unknown))
        moment = self._effective_from()
        models = self.content.get("models")
        if not isinstance(models, dict) or not models:
            raise self.error("no [models.…] table", key="models")
        return [
            (model, meter, self._rate(model, meter, value), moment)
            for model, table in models.items()
            for meter, value in self._table(model, table).items()
        ]

    def _effective_from(self) -> datetime:
        moment = self.content.get("effective_from")
        if not isinstance(moment, datetime) or moment.tzinfo is None:
            raise self.error("effective_from is a date and time with its offset", key="effective_from")
        return moment

    def _table(self, model: str, table: Any) -> dict[str, Any]:
        if not isinstance(table, dict) or not table:
            raise self.error(f"{model} has no rates", model=model)
        return table

    def _rate(self, model: str, meter: str, value: Any) -> Decimal:
        if meter not in Meter.values:
            raise self.error(
                f"{model}: unknown meter {meter!r} (one of {', '.join(Meter.values)})", model=model, key=meter
            )
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise self.error(f"{model}: {meter} is a number, not {value!r}", model=model, key=meter)
        try:
            price_ppt(Decimal(value), meter=meter)
        except RateError as error:
            raise self.error(f"{model}: {error}, not {value}", model=model, key=meter) from error
        return Decimal(value)

    def error(self, message: str, *, model: str = "", key: str = "") -> RateFileError:
        return RateFileError(f"{self.path}:{self._line(model, key)}: {message}")

    def _line(self, model: str, key: str) -> int:
        """About where: the key's line below the model's header (TOML's parser keeps no positions)."""
        lines = self.text.splitlines()
        header = re.compile(rf"\s*\[\s*models\s*\.\s*[\"']?{re.escape(model)}[\"']?\s*\]") if model else None
        start = next((i for i, line in enumerate(lines) if header and header.match(line)), 0)
        found = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        return next((i for i, line in enumerate(lines) if i >= start and key and found.match(line)), start) + 1


class Loaded(NamedTuple):
    added: int
    unchanged: int


@transaction.atomic
def load_rates(path: Path = BUILT_IN_RATES) -> Loaded:
    """Add a file's rates to the card, all or none. Loading the same file again changes nothing."""
    file = RateFile(path)
    known = {
        (rate.model, rate.meter, rate.effective_from): rate.rate for rate in Rate.objects.select_for_update().order_by()
    }
    added = unchanged = 0
    for model, meter, rate, moment in file.rows():
        there = known.get((model, meter, moment))
        if there is None:
            entry = Rate(model=model, meter=meter, rate=rate, effective_from=moment, created_by=LOADED_BY)
            _add(file, entry)
            added += 1
        elif there == rate:
            unchanged += 1
        else:
            raise file.error(
                f"{model}: {meter} was {there} from that moment on; a change needs a later effective_from",
                model=model,
                key=meter,
            )
    return Loaded(added, unchanged)


def _add(file: RateFile, rate: Rate) -> None:
    try:
        rate.full_clean()
    except ValidationError as error:
        reason = " ".join(error.messages)
        raise file.error(f"{rate.model}: {rate.meter}: {reason}", model=rate.model, key=rate.meter) from error
    rate.save()
