"""One prompt to two, three or four models side by side."""

from __future__ import annotations

import uuid
from typing import Any

from asgiref.sync import sync_to_async
from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import right_required, team_required
from accounts.rights import Right
from gateway.catalog import EFFORTS, Model
from playground import asking
from playground.asking import Exchange, Said
from playground.asking_views import begin_to_answer, refused, why_not
from playground.branches import tree_of
from playground.chat_page import by_family, list_context, own
from playground.comparison_form import MODELS_AT_MOST, ComparisonForm
from playground.models import Conversation, Turn
from playground.request import PersonRequest, chat_models
from playground.settings_form import as_typed
from playground.stream import Followed
from playground.transcript import shown
from playground.turn_views import stream_of


@right_required(Right.USE_MODELS)
@require_http_methods(["GET", "POST"])
async def compare(request: PersonRequest) -> HttpResponse:
    """An empty comparison; POST begins one, which has an address of its own."""
    models = chat_models(request)
    if request.method == "GET":
        return await sync_to_async(_page)(request, models)
    form = ComparisonForm(request.POST, request.FILES, models=models)
    if not form.is_valid():
        return await refused(request, form=form)
    try:
        exchanges, bodies = await sync_to_async(_begin)(request, form)
    except asking.TooLarge as error:
        return await refused(request, message=why_not(error))
    for exchange, body in zip(exchanges, bodies, strict=True):
        begin_to_answer(request, exchange, body)
    conversation = exchanges[0].conversation
    response = await sync_to_async(_begun)(request, conversation)
    response["HX-Push-Url"] = reverse("playground:comparison", args=[conversation.pk])
    return response


def _begin(request: PersonRequest, form: ComparisonForm) -> tuple[list[Exchange], list[dict[str, Any]]]:
    said = Said(form.cleaned_data["message"], form.pictures)
    exchanges = asking.compare(owner=request.user, team=request.team, said=said, chosen=form.all_chosen())
    return exchanges, [exchange.body() for exchange in exchanges]


def _begun(request: PersonRequest, conversation: Conversation) -> HttpResponse:
    context = _answers(conversation) | list_context(request, current=conversation) | {"oob": True}
    return render(request, "playground/compare.html#begun", context)


@team_required
@require_GET
def comparison(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = _comparison(request, conversation_id)
    return _page(request, chat_models(request), conversation)


@team_required
@require_GET
async def compare_stream(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponseBase:
    """All its answers in one connection: a browser has only six for all its tabs."""
    conversation = await sync_to_async(_comparison)(request, conversation_id)
    answers = [turn async for turn in conversation.turns.filter(role=Turn.Role.ASSISTANT, deleted_at=None)]
    return await stream_of(request, [Followed(turn.pk, is_json=turn.is_json) for turn in answers], compares=True)


def _comparison(request: PersonRequest, conversation_id: uuid.UUID) -> Conversation:
    conversation = own(request, conversation_id)
    if not conversation.is_comparison:
        raise Http404
    return conversation


def _page(request: PersonRequest, models: list[Model], conversation: Conversation | None = None) -> HttpResponse:
    context: dict[str, Any] = list_context(request, current=conversation)
    compared = request.GET.getlist("model")
    if conversation is not None:
        context |= _answers(conversation)
        compared = [answer.turn.model for answer in context["answers"]]
    known = [name for name in compared if any(model.id == name for model in models)]
    picked = (known or [model.id for model in models[:2]])[:MODELS_AT_MOST]
    slots = [picked[place] if place < len(picked) else "" for place in range(MODELS_AT_MOST)]
    typed = as_typed(conversation.settings) if conversation else {}
    context |= {"families": by_family(models), "slots": slots, "typed": typed, "compares": True}
    context["tiers"] = EFFORTS
    return render(request, "playground/compare.html", context)


def _answers(conversation: Conversation) -> dict[str, Any]:
    """The question and its answers side by side, those of later turns left to the chat."""
    tree = tree_of(conversation)
    path = tree.path()
    if not path:
        return {"conversation": conversation, "answers": []}
    conversation.turns.close_cut_off()
    turns = conversation.turns.in_bulk(tree.children(path[0]))
    answers = [shown([turn], tree=tree)[0] for _id, turn in sorted(turns.items())]
    question = shown([conversation.turns.get(pk=path[0])], tree=tree)[0]
    return {
        "conversation": conversation,
        "question": question,
        "answers": answers[:MODELS_AT_MOST],
        "is_streaming": any(answer.turn.is_streaming for answer in answers),
    }
