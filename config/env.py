"""Settings from the environment, read with types; nonsense is refused at start.

Every read is remembered with its type, default and help text, so that the README's
table and `.env.example` can be held against what the code really reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path


class EnvError(ValueError):
    """A variable's value cannot be used; the text names the variable and what it takes."""


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    default: str
    help: str


@dataclass(slots=True)
class Env:
    values: Mapping[str, str]
    variables: list[Variable] = field(default_factory=list)

    def _read(self, name: str, default: str, help: str) -> str:
        self.variables.append(Variable(name, default, help))
        return self.values.get(name, "").strip() or default

    def text(self, name: str, default: str = "", *, help: str) -> str:
        return self._read(name, default, help)

    def flag(self, name: str, default: bool, *, help: str) -> bool:
        raw = self._read(name, "true" if default else "false", help).lower()
        if raw in {"1", "true", "yes", "on"}:
            return True
        if raw in {"0", "false", "no", "off"}:
            return False
        raise EnvError(f"{name} takes true or false, not {raw!r}")

    def integer(self, name: str, default: int, *, help: str, minimum: int = 0) -> int:
        raw = self._read(name, str(default), help)
        try:
            value = int(raw)
        except ValueError:
            raise EnvError(f"{name} takes a whole number, not {raw!r}") from None
        if value < minimum:
            raise EnvError(f"{name} takes {minimum} or more, not {value}")
        return value

    def decimal(self, name: str, default: str, *, help: str) -> Decimal:
        raw = self._read(name, default, help)
        try:
            value = Decimal(raw)
        except InvalidOperation:
            raise EnvError(f"{name} takes a number, not {raw!r}") from None
        if not value.is_finite() or value < 0:
            raise EnvError(f"{name} takes a number of 0 or more, not {raw!r}")
        return value

    def networks(self, name: str, default: str = "", *, help: str) -> tuple[IPv4Network | IPv6Network, ...]:
        try:
            return tuple(ip_network(item) for item in self.items(name, default, help=help))
        except ValueError as error:
            raise EnvError(f"{name} takes networks such as 10.0.0.0/8: {error}") from None

    def choice(self, name: str, default: str, choices: Sequence[str], *, help: str) -> str:
        raw = self._read(name, default, help)
        if raw not in choices:
            raise EnvError(f"{name} takes one of {', '.join(choices)}, not {raw!r}")
        return raw

    def items(self, name: str, default: str = "", *, help: str) -> list[str]:
        raw = self._read(name, default, help)
        return [item.strip() for item in raw.split(",") if item.strip()]

    def path(self, name: str, default: str = "", *, help: str) -> Path | None:
        raw = self._read(name, default, help)
        return Path(raw).expanduser() if raw else None


def read_dotenv(path: Path) -> dict[str, str]:
    """`NAME=value` lines of a `.env` file; comments, blank lines and one pair of quotes are dropped."""
    if not path.is_file():
        return {}
    values = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip().isidentifier():
            raise EnvError(f"{path}, line {number}: expected NAME=value")
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        values[name.strip()] = value
    return values


def environment(base_dir: Path) -> Env:
    """The process environment over the project's `.env` file."""
    return Env({**read_dotenv(base_dir / ".env"), **os.environ})
