"""The models of an endpoint that one can use right now, each with what a unit of it costs."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from accounts.rights import Right, may
from billing.models import Meter
from billing.pricing import format_points
from billing.rates import prices_at
from gateway.catalog import Endpoint, Model
from gateway.runtime import runtime
from playground.request import PersonRequest, caller_of

UNITS = {Endpoint.OCR: Meter.PAGE, Endpoint.SPEECH: Meter.CHARACTER, Endpoint.SYSTEMONE: Meter.INPUT}


@dataclass(frozen=True, slots=True)
class Offer:
    """`price_ppt` is for one page, character or input token; None where the model has no rate yet."""

    model: Model
    price_ppt: int | None

    @property
    def price(self) -> str:
        return format_points(self.price_ppt or 0)


def offers_of(request: PersonRequest, endpoint: Endpoint) -> list[Offer]:
    """None to a viewer, who uses no models."""
    if not may(request.membership, Right.USE_MODELS):
        return []
    served = [model for model in runtime().models_for(caller_of(request)) if model.endpoint is endpoint]
    now = timezone.now()
    return [Offer(model, prices_at(model.id, now).get(UNITS[endpoint])) for model in served]


def chosen_of(offers: list[Offer], model_id: str) -> Offer | None:
    """The one of that id, else the first."""
    return next((offer for offer in offers if offer.model.id == model_id), offers[0] if offers else None)
