"""The home page and the model catalog: open to everybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.conf import settings as site
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET

from accounts.access import public
from billing.models import Meter, Source
from billing.rates import RateCard, format_rate
from gateway.caller import Caller
from gateway.catalog import Endpoint, ImageTokens, Model, ReasoningTokens, SystemPlacement
from gateway.runtime import runtime
from playground.chat_settings import thinking_control
from playground.code_examples import model_examples
from playground.model_facts import dropped_parameters, refusals, serving

ANYBODY = Caller(team_id=0, key_id=0, member_id=0, source=Source.PLAYGROUND)
ENDPOINT_LABELS = {
    Endpoint.CHAT: _("Chat"),
    Endpoint.OCR: _("Document reading"),
    Endpoint.SPEECH: _("Speech"),
    Endpoint.SYSTEMONE: _("Decisions"),
}
# Where a model is tried, and the icon of that page.
TRIED_AT = {
    Endpoint.CHAT: ("playground:chat", "message-square"),
    Endpoint.OCR: ("playground:documents", "file-text"),
    Endpoint.SPEECH: ("playground:speech", "audio-lines"),
    Endpoint.SYSTEMONE: ("playground:decisions", "scale"),
}
SYSTEM_LABELS = {
    SystemPlacement.ANYWHERE: _("In any position, more than one allowed"),
    SystemPlacement.EXACTLY_ONE_FIRST: _("Exactly one, and it must come first"),
    SystemPlacement.AT_MOST_ONE_FIRST: _("At most one, and it must come first"),
    SystemPlacement.ONE_FIRST_VERIFIED: _("One, at the start; other positions are not verified"),
}
REASONING_LABELS = {
    ReasoningTokens.COUNTED: _("Counted in completion_tokens_details.reasoning_tokens"),
    ReasoningTokens.ZERO: _("Reported as 0 even when it thinks; inside completion_tokens all the same"),
    ReasoningTokens.ABSENT: _("Not reported apart; inside completion_tokens all the same"),
    ReasoningTokens.UNVERIFIED: _("Not verified"),
}
MODALITY_LABELS = {
    "text": _("text"),
    "image": _("images"),
    "video": _("videos"),
    "file": _("PDF"),
    "audio": _("audio"),
    "probabilities": _("probabilities"),
}


@dataclass(frozen=True, slots=True)
class Card:
    """A model with what it costs now, and since when, in the reader's language."""

    model: Model
    rates: Mapping[str, Decimal]
    since: datetime | None
    available: bool

    @property
    def description(self) -> str:
        return self.model.describe(get_language() or "")

    @property
    def notes(self) -> tuple[str, ...]:
        return self.model.notes_in(get_language() or "")

    @property
    def unverified(self) -> tuple[str, ...]:
        return self.model.unverified_in(get_language() or "")

    @property
    def priced_rates(self) -> list[tuple[str, str]]:
        """Label and rate of each meter this model is charged by, in the order of the meters."""
        return [
            (str(Meter(meter).label), format_rate(self.rates[meter])) for meter in Meter.values if meter in self.rates
        ]

    @property
    def inputs(self) -> list[str]:
        return [str(MODALITY_LABELS.get(name, name)) for name in self.model.input_modalities]

    @property
    def inputs_beside_text(self) -> list[str]:
        return [label for label, name in zip(self.inputs, self.model.input_modalities, strict=True) if name != "text"]

    @property
    def outputs(self) -> list[str]:
        return [str(MODALITY_LABELS.get(name, name)) for name in self.model.output_modalities]

    @property
    def per(self) -> object:
        if "page" in self.rates:
            return _("points per page")
        return _("points per million characters") if "character" in self.rates else _("points per million tokens")

    @property
    def endpoint_label(self) -> object:
        return ENDPOINT_LABELS[self.model.endpoint]

    @property
    def tried_at(self) -> str:
        return TRIED_AT[self.model.endpoint][0]

    @property
    def icon(self) -> str:
        return TRIED_AT[self.model.endpoint][1]

    @property
    def system_label(self) -> object:
        return SYSTEM_LABELS[self.model.messages.system]

    @property
    def reasoning_label(self) -> object:
        return REASONING_LABELS[self.model.usage.reasoning_tokens]

    @property
    def image_usage(self) -> str:
        """Where in `usage.prompt_tokens_details` images are counted; empty where nobody has verified it."""
        place = self.model.usage.image_tokens
        return "" if place is ImageTokens.UNVERIFIED else place.value


def _cards() -> list[Card]:
    """Every model of the catalog and every model an upstream serves, those that can be used first."""
    usable = {model.id: model for model in runtime().models_for(ANYBODY)}
    models = {model.id: model for model in runtime().catalog.values()} | usable
    card, now = RateCard.load(), timezone.now()
    cards = [
        Card(model, card.rates(model.id, now), card.since(model.id, now), model.id in usable)
        for model in models.values()
    ]
    return sorted(cards, key=lambda card: not card.available)


@public
@require_GET
def home(request: HttpRequest) -> HttpResponse:
    usable = [card for card in _cards() if card.available]
    first_chat = next((card.model for card in usable if card.model.is_chat), None)
    examples = model_examples(model=first_chat, site_url=site.SITE_URL) if first_chat else []
    return render(
        request, "playground/home.html", {"cards": usable, "examples": examples, "sign_up_open": site.SIGN_UP == "open"}
    )


@public
@require_GET
def models(request: HttpRequest) -> HttpResponse:
    return render(request, "playground/models.html", {"cards": _cards()})


@public
@require_GET
def model(request: HttpRequest, model_id: str) -> HttpResponse:
    card = next((card for card in _cards() if card.model.id == model_id), None)
    if card is None:
        raise Http404
    context = {
        "card": card,
        "examples": model_examples(model=card.model, site_url=site.SITE_URL),
        "control": thinking_control(card.model),
        "serving": serving(card.model),
        "refusals": refusals(card.model),
        "dropped": dropped_parameters(card.model),
    }
    return render(request, "playground/model.html", context)
