"""The views that ask a model. Each answers with what the page shows now; the answer comes by its stream."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial

from asgiref.sync import sync_to_async
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods, require_POST

from accounts.access import right_required
from accounts.rights import Right
from playground import asking, generation
from playground.asking import Exchange, Result, Said
from playground.chat_page import list_context, own, own_turn, turns_context
from playground.models import Turn
from playground.request import PersonRequest, caller_of, chat_models
from playground.settings_form import MAX_JSON_LENGTH, MAX_MESSAGE_LENGTH, MessageForm, SettingsForm, clean_text

type Verb = Callable[..., Exchange]


@right_required(Right.USE_MODELS)
@require_POST
async def send(request: PersonRequest) -> HttpResponse:
    form = MessageForm(request.POST, request.FILES, models=chat_models(request))
    if not form.is_valid():
        return await refused(request, form=form)
    said = Said(form.cleaned_data["message"], form.pictures)
    conversation_id = form.cleaned_data["conversation"]
    if conversation_id is None:
        verb: Verb = partial(asking.begin, owner=request.user, team=request.team, said=said)
    else:
        conversation = await sync_to_async(own)(request, conversation_id)
        verb = partial(asking.ask, conversation=conversation, said=said, parent_id=form.cleaned_data["parent"])
    return await _asked(request, form, verb, appended=True)


@right_required(Right.USE_MODELS)
@require_POST
async def answer_again(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    turn = await sync_to_async(own_turn)(request, conversation_id, turn_id, Turn.Role.ASSISTANT)
    return await _asked(request, _settings(request), partial(asking.answer_again, turn=turn))


@right_required(Right.USE_MODELS)
@require_http_methods(["GET", "POST"])
async def edit(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    turn = await sync_to_async(own_turn)(request, conversation_id, turn_id, Turn.Role.USER)
    if request.method == "GET":
        return await sync_to_async(render)(request, "playground/edit.html", {"turn": turn})
    text = clean_text(request.POST.get("text", ""))[:MAX_MESSAGE_LENGTH]
    if not text.strip() and not await turn.images.aexists():
        return await refused(request, message=gettext("Write a message first."))
    return await _asked(request, _settings(request), partial(asking.edit, turn=turn, text=text))


@right_required(Right.USE_MODELS)
@require_POST
async def give_results(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    turn = await sync_to_async(own_turn)(request, conversation_id, turn_id, Turn.Role.ASSISTANT)
    if not turn.tool_calls:
        raise Http404
    given = [clean_text(text)[:MAX_JSON_LENGTH] for text in request.POST.getlist("result")]
    if len(given) != len(turn.tool_calls) or not all(text.strip() for text in given):
        return await refused(request, message=gettext("Write what the tool answers, for every call."))
    results = [Result(call["id"], call["name"], text) for call, text in zip(turn.tool_calls, given, strict=True)]
    return await _asked(request, _settings(request), partial(asking.give_results, turn=turn, results=results))


def _settings(request: PersonRequest) -> SettingsForm:
    return SettingsForm(request.POST, models=chat_models(request))


async def _asked(request: PersonRequest, form: SettingsForm, verb: Verb, *, appended: bool = False) -> HttpResponse:
    if not form.is_valid():
        return await refused(request, form=form)
    try:
        exchange, body = await sync_to_async(_exchange)(verb, form)
    except (asking.Busy, asking.Gone, asking.TooLarge) as error:
        return await refused(request, message=why_not(error))
    begin_to_answer(request, exchange, body)
    response = await sync_to_async(_show)(request, exchange, appended=appended)
    response["HX-Push-Url"] = reverse("playground:conversation", args=[exchange.conversation.pk])
    return response


def _exchange(verb: Verb, form: SettingsForm) -> tuple[Exchange, dict[str, object]]:
    exchange = verb(chosen=form.chosen())
    return exchange, exchange.body()


def begin_to_answer(request: PersonRequest, exchange: Exchange, body: dict[str, object]) -> None:
    caller = caller_of(request, portable=exchange.chosen.portable)
    generation.start(turn_id=exchange.answer.pk, caller=caller, body=body)


def why_not(error: Exception) -> str:
    match error:
        case asking.Busy():
            return gettext("An answer is still being written here. Wait for it, or stop it.")
        case asking.TooLarge():
            return gettext(
                "The pictures of this conversation together are too large for one request. Start a new chat."
            )
    return gettext("That message is there no more. Reload the page to see what is.")


def _show(request: PersonRequest, exchange: Exchange, *, appended: bool) -> HttpResponse:
    """The new question and answer; or the path from its change on, which other turns have left."""
    conversation = exchange.conversation
    context = turns_context(conversation, around=exchange.question.pk)
    if appended:
        context["turns"] = context["turns"][-2:]
        context["earlier"] = None
    context |= {"oob": True} | list_context(request, current=conversation)
    return render(request, "playground/chat.html#asked", context)


async def refused(request: PersonRequest, *, form: SettingsForm | None = None, message: str = "") -> HttpResponse:
    response = await sync_to_async(render)(
        request, "playground/refusal.html", {"form": form, "refusal": message}, status=422
    )
    response["HX-Retarget"] = "#composer-refusal"
    response["HX-Reswap"] = "innerHTML"
    return response
