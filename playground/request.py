"""What a signed-in request carries here, and who it is to the gateway."""

from __future__ import annotations

from dataclasses import replace

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails

from accounts.models import Membership, Team, User
from billing.models import Source
from gateway.allowances import caller_of_person
from gateway.caller import Caller
from gateway.catalog import Model
from gateway.runtime import runtime


class PersonRequest(HttpRequest):
    htmx: HtmxDetails
    team: Team
    membership: Membership
    user: User


def caller_of(request: PersonRequest, *, portable: bool = False) -> Caller:
    caller = caller_of_person(team=request.team, user=request.user, source=Source.PLAYGROUND)
    return replace(caller, allowance=replace(caller.allowance, portable=True)) if portable else caller


def chat_models(request: PersonRequest) -> list[Model]:
    """Models one can chat with right now."""
    return [model for model in runtime().models_for(caller_of(request)) if model.is_chat]
