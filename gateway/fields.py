"""Checks of single fields, and the rebuild that passes on what was checked and drops the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from gateway.catalog import Endpoint, Model
from gateway.errors import InvalidRequest

type Json = dict[str, Any]
type Check = Callable[[Any, str], None]
type FindModel = Callable[[str], Model | None]


def rebuild(document: Json, *, checks: Mapping[str, Check], required: Collection[str]) -> tuple[Json, list[str]]:
    """The checked fields and the names of those dropped; null counts as absent."""
    for name in required:
        if document.get(name) is None:
            raise InvalidRequest(f"{name} is required", param=name)
    body: Json = {}
    dropped = []
    for name, value in document.items():
        check = checks.get(name)
        if check is None:
            dropped.append(name)
        elif value is not None:
            check(value, name)
            body[name] = value
    return body, dropped


def served_model(name: str, *, endpoint: Endpoint, find_model: FindModel) -> Model:
    """The card of a model that this endpoint serves; a model of another endpoint is as unknown as none."""
    model = find_model(name)
    if model is None or model.endpoint is not endpoint:
        raise InvalidRequest(f"Requested model {name} not supported", param="model")
    return model


def refusal(param: str, expected: str, *, status: int | None = None) -> InvalidRequest:
    return InvalidRequest(f"{param} must be {expected}", param=param, status=status)


def text(value: Any, param: str) -> None:
    if not isinstance(value, str):
        raise refusal(param, "a string")


def flag(value: Any, param: str) -> None:
    if not isinstance(value, bool):
        raise refusal(param, "true or false")


def number(minimum: float, maximum: float) -> Check:
    def check(value: Any, param: str) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value <= maximum:
            raise refusal(param, f"a number from {minimum:g} to {maximum:g}")

    return check


def one_of(*values: str) -> Check:
    def check(value: Any, param: str) -> None:
        if not isinstance(value, str) or value not in values:
            raise refusal(param, f"one of {', '.join(values)}")

    return check


def anything(value: Any, param: str) -> None:
    """Judged elsewhere."""
