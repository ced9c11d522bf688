"""What the documentation says in tables: read from the catalog, the errors, the settings and the rate card."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from billing.models import Meter
from billing.rates import RateCard, format_rate_of
from gateway.catalog import Model
from gateway.errors import (
    CallError,
    Forbidden,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    Unauthorized,
    UpstreamSaturated,
    UpstreamTimeout,
    UpstreamUnavailable,
)

type Text = str | Promise


class ErrorRow(NamedTuple):
    status: int
    type: str
    code: str
    anthropic_type: str
    meaning: Text


class LimitRow(NamedTuple):
    """`default` is empty where the gate is closed to nobody unless somebody sets it."""

    name: Text
    default: str
    code: str


def error_rows() -> list[ErrorRow]:
    return [
        _row(InvalidRequest, _("The request cannot be served as it is; the message says what to change.")),
        _row(Unauthorized, _("No key, a wrong one, or one that was revoked or has expired.")),
        _row(Forbidden, _("The key may not do that: its scope, its team or its network address.")),
        _row(NotFound, _("There is no such path.")),
        _row(MethodNotAllowed, _("The path takes another method; the header Allow names it."), status=405),
        _row(InvalidRequest, _("The body is larger than the endpoint takes."), status=413, code="request_too_large"),
        _row(InvalidRequest, _("The body is of a kind that the endpoint does not read."), status=415),
        _row(InvalidRequest, _("The model's own server could not read a field."), status=422),
        _row(RateLimited, _("A limit is reached; Retry-After says when to come again."), code=_("the limit's")),
        _row(CallError, _("A fault of ours. The message holds the request id and nothing else."), status=500),
        _row(UpstreamUnavailable, _("The model server could not be reached or broke off.")),
        _row(UpstreamSaturated, _("Every server of the model is busy; Retry-After says when to come again.")),
        _row(UpstreamTimeout, _("The model server took too long.")),
    ]


def _row(error: type[CallError], meaning: Text, *, status: int | None = None, code: Text = "") -> ErrorRow:
    too_large = code == "request_too_large"
    anthropic = "request_too_large" if too_large else error.anthropic_type
    return ErrorRow(status or error.status, error.type, str(code or error.default_code or ""), anthropic, meaning)


def limit_rows() -> list[LimitRow]:
    """In the order in which a refusal is named; 0 turns a limit off."""
    return [
        LimitRow(_("Requests a minute per key"), _set(settings.RATE_LIMIT_KEY_RPM), "token_rate_limit_exceeded"),
        LimitRow(_("Requests a minute per address"), _set(settings.RATE_LIMIT_IP_RPM), "ip_rate_limit_exceeded"),
        LimitRow(_("Requests a minute per team"), _set(settings.RATE_LIMIT_TEAM_RPM), "rate_limit_exceeded"),
        LimitRow(
            _("Requests in flight per key"),
            _set(settings.RATE_LIMIT_KEY_CONCURRENCY),
            "token_concurrency_rate_limit_exceeded",
        ),
        LimitRow(_("Requests in flight per model"), "", "model_concurrency_rate_limit_exceeded"),
        LimitRow(
            _("Requests in flight per web process"),
            _set(settings.RATE_LIMIT_PROCESS_CONCURRENCY),
            "process_concurrency_rate_limit_exceeded",
        ),
        LimitRow(
            _("Requests in flight on the whole site"),
            _set(settings.RATE_LIMIT_SITE_CONCURRENCY),
            "global_concurrency_rate_limit_exceeded",
        ),
        LimitRow(_("Points of the team in a period"), _set(settings.TEAM_POINTS_LIMIT), "insufficient_quota"),
    ]


def _set(value: int | Decimal) -> str:
    return f"{value:f}" if isinstance(value, Decimal) and value else str(value) if value else ""


class RateRow(NamedTuple):
    model: str
    rates: Sequence[str]


def rate_meters() -> list[Meter]:
    return list(Meter)


def rate_rows(models: Sequence[Model]) -> list[RateRow]:
    """Of each model with a rate, what each meter costs now; a dash where it has none."""
    card, now = RateCard.load(), timezone.now()
    found = [(model.id, card.rates(model.id, now)) for model in models]
    return [RateRow(model, [format_rate_of(rates, meter) for meter in Meter.values]) for model, rates in found if rates]
