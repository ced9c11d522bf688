"""The chat. Each view loads what belongs to the person first: somebody else's is a 404."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings as site
from django.db import connections
from django.db.models import Q
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.dateparse import parse_datetime
from django.utils.translation import get_language, gettext
from django.views.decorators.http import require_GET, require_POST

from accounts.access import right_required, team_required
from accounts.rights import Right
from gateway.catalog import Model, unknown_model
from playground import conversations as chats
from playground import generation
from playground.chat_settings import MessageForm, SettingsForm, request_body, thinking_control
from playground.code_examples import chat_examples
from playground.models import Conversation, Turn
from playground.request import PersonRequest, caller_of, chat_models
from playground.starters import STARTERS
from playground.stream import events
from playground.transcript import shown, shown_one

CONVERSATIONS_A_PAGE = 30
TURNS_A_PAGE = 40


# -- pages -------------------------------------------------------------------------------------


@team_required
@require_GET
def new_chat(request: PersonRequest) -> HttpResponse:
    models = chat_models(request)
    chosen = next((model for model in models if model.id == request.GET.get("model")), models[0] if models else None)
    context = _settings_context(models, chosen.id if chosen else "", {}) | _sidebar(request)
    return render(
        request, "playground/chat.html", context | {"draft": request.GET.get("prompt", ""), "starters": STARTERS}
    )


@team_required
@require_GET
def conversation(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = _own(request, conversation_id)
    conversation.turns.close_cut_off()
    context = {"conversation": conversation} | _turns(conversation, before=request.GET.get("before", ""))
    if request.htmx and "before" in request.GET:
        return render(request, "playground/chat.html#turns", context)
    models = chat_models(request)
    context |= _settings_context(models, conversation.model, conversation.settings)
    return render(request, "playground/chat.html", context | _sidebar(request, current=conversation))


@team_required
@require_GET
def conversations(request: PersonRequest) -> HttpResponse:
    """The next page of the list."""
    if not request.htmx:
        return redirect("playground:chat")
    return render(request, "playground/chat.html#conversations", _sidebar(request, after=request.GET.get("after", "")))


@team_required
@require_GET
def model_controls(request: PersonRequest) -> HttpResponse:
    """What the chosen model lets one set."""
    if not request.htmx:
        return redirect("playground:chat")
    context = _settings_context(
        chat_models(request), request.GET.get("model", ""), {"effort": request.GET.get("effort", "")}
    )
    return render(request, "playground/settings.html#model", context)


@team_required
@require_POST
def code(request: PersonRequest) -> HttpResponse:
    """The request that Send would make now, as code."""
    form = SettingsForm(request.POST, models=chat_models(request))
    if not form.is_valid():
        return render(request, "playground/code.html", {"form": form})
    messages = chats.messages_of(_history(request))
    draft = request.POST.get("message", "").strip()
    if draft:
        messages.append({"role": "user", "content": draft})
    elif messages and messages[-1]["role"] == Turn.Role.ASSISTANT:
        messages.pop()  # nothing to send now: show the request that was answered last
    messages = messages or [{"role": "user", "content": gettext("Hello!")}]
    body = request_body(model=form.models[form.cleaned_data["model"]], settings=form.settings(), messages=messages)
    return render(request, "playground/code.html", {"examples": chat_examples(body=body, site_url=site.SITE_URL)})


# -- asking ------------------------------------------------------------------------------------


@right_required(Right.USE_MODELS)
@require_POST
async def send(request: PersonRequest) -> HttpResponse:
    form = MessageForm(request.POST, models=chat_models(request))
    if not form.is_valid():
        return await _refused(request, form=form)
    conversation_id = form.cleaned_data["conversation"]
    conversation = await sync_to_async(_own)(request, conversation_id) if conversation_id else None
    text = form.cleaned_data["message"]
    if conversation is None:
        begin = partial(chats.begin, owner=request.user, team=request.team, text=text)
        return await _asked(request, form, begin, "playground/chat.html#exchange")
    return await _asked(
        request, form, partial(chats.ask, conversation=conversation, text=text), "playground/chat.html#exchange"
    )


@right_required(Right.USE_MODELS)
@require_POST
async def answer_again(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = await sync_to_async(_own)(request, conversation_id)
    form = SettingsForm(request.POST, models=chat_models(request))
    if not form.is_valid():
        return await _refused(request, form=form)
    return await _asked(
        request, form, partial(chats.answer_again, conversation=conversation), "playground/chat.html#answer"
    )


async def _asked(
    request: PersonRequest, form: SettingsForm, verb: Callable[..., chats.Exchange], template: str
) -> HttpResponse:
    model, settings = form.models[form.cleaned_data["model"]], form.settings()
    try:
        exchange = await sync_to_async(verb)(model=model.id, settings=settings)
    except chats.Busy:
        return await _refused(
            request, message=gettext("An answer is still being written here. Wait for it, or stop it.")
        )
    except Turn.DoesNotExist:
        raise Http404 from None
    body = request_body(model=model, settings=settings, messages=exchange.messages)
    generation.start(turn_id=exchange.answer.pk, caller=caller_of(request), body=body)
    response = await sync_to_async(_show_exchange)(request, exchange, template)
    response["HX-Push-Url"] = reverse("playground:conversation", args=[exchange.conversation.pk])
    return response


def _show_exchange(request: PersonRequest, exchange: chats.Exchange, template: str) -> HttpResponse:
    context = {
        "conversation": exchange.conversation,
        "question": shown_one(exchange.question),
        "answer": shown_one(exchange.answer),
        "oob": True,
    }
    return render(request, template, context | _sidebar(request, current=exchange.conversation))


async def _refused(request: PersonRequest, *, form: SettingsForm | None = None, message: str = "") -> HttpResponse:
    response = await sync_to_async(render)(
        request, "playground/chat.html#refusal", {"form": form, "refusal": message}, status=422
    )
    response["HX-Retarget"] = "#composer-refusal"
    response["HX-Reswap"] = "innerHTML"
    return response


# -- one turn ----------------------------------------------------------------------------------


@team_required
@require_GET
def turn(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    """The turn as it is now; what a page asks for when its stream broke."""
    turn = _own_turn(request, conversation_id, turn_id)
    if not request.htmx:
        return redirect("playground:conversation", conversation_id)
    return render(request, "playground/turn.html", {"conversation": turn.conversation, "shown": shown_one(turn)})


@team_required
@require_GET
async def stream(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponseBase:
    await sync_to_async(_own_turn)(request, conversation_id, turn_id)

    async def foot() -> str:
        return await sync_to_async(_foot)(request, turn_id)

    # The stream may last for minutes: the connection that loaded the turn goes back first.
    await sync_to_async(connections.close_all)()
    response = StreamingHttpResponse(
        events(turn_id=turn_id, language=get_language() or site.LANGUAGE_CODE, foot=foot),
        content_type="text/event-stream",
    )
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return response


def _foot(request: PersonRequest, turn_id: int) -> str:
    turn = Turn.objects.select_related("conversation").filter(pk=turn_id).first()
    if turn is None:
        return ""
    return render_to_string(
        "playground/foot.html", {"conversation": turn.conversation, "shown": shown_one(turn)}, request
    )


@team_required
@require_POST
async def stop(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    await sync_to_async(_own_turn)(request, conversation_id, turn_id)
    await generation.stop(turn_id=turn_id)
    return HttpResponse(status=204)


@team_required
@require_GET
def meter(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    turn = _own_turn(request, conversation_id, turn_id)
    if not request.htmx:
        return redirect("playground:conversation", conversation_id)
    attempt = request.GET.get("attempt", "")
    shown_turn = shown_one(turn, meter_attempt=int(attempt) if attempt.isdecimal() else 0)
    return render(request, "playground/meter.html", {"conversation": turn.conversation, "shown": shown_turn})


# -- a conversation ------------------------------------------------------------------------------


@team_required
@require_POST
def rename(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = _own(request, conversation_id)
    chats.rename(conversation=conversation, title=request.POST.get("title", ""))
    if not request.htmx:
        return redirect("playground:conversation", conversation_id)
    return render(
        request,
        "playground/chat.html#renamed",
        {"conversation": conversation, "oob": True} | _sidebar(request, current=conversation),
    )


@team_required
@require_POST
async def delete(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = await sync_to_async(_own)(request, conversation_id)
    async for turn_id in conversation.turns.filter(state=Turn.State.STREAMING).values_list("pk", flat=True):
        await generation.stop(turn_id=turn_id)
    await conversation.adelete()
    if not request.htmx:
        return redirect("playground:chat")
    return HttpResponse(headers={"HX-Redirect": reverse("playground:chat")})


# -- what the templates need -----------------------------------------------------------------------


def _own(request: PersonRequest, conversation_id: uuid.UUID) -> Conversation:
    try:
        return chats.own(request.user, request.team, conversation_id)
    except Conversation.DoesNotExist:
        raise Http404 from None


def _own_turn(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> Turn:
    conversation = _own(request, conversation_id)
    turn = conversation.turns.filter(pk=turn_id, role=Turn.Role.ASSISTANT).first()
    if turn is None:
        raise Http404
    turn.conversation = conversation
    return turn


def _history(request: PersonRequest) -> list[Turn]:
    try:
        return list(_own(request, uuid.UUID(request.POST.get("conversation", ""))).turns.all())
    except ValueError:
        return []


def _turns(conversation: Conversation, *, before: str) -> dict[str, Any]:
    """A page of turns, the latest unless `before` names a turn, and where the page before it ends."""
    turns = conversation.turns.order_by("-id")
    if before.isdecimal():
        turns = turns.filter(id__lt=int(before))
    page = list(turns[: TURNS_A_PAGE + 1])
    earlier = page[TURNS_A_PAGE - 1].pk if len(page) > TURNS_A_PAGE else None
    return {"turns": shown(page[:TURNS_A_PAGE][::-1]), "earlier": earlier}


def _sidebar(request: PersonRequest, *, current: Conversation | None = None, after: str = "") -> dict[str, Any]:
    rows = Conversation.objects.of(request.user, request.team)
    moment, _comma, last_id = after.partition(",")
    updated_at = _moment(moment)
    if updated_at is not None and last_id:
        rows = rows.filter(Q(updated_at__lt=updated_at) | Q(updated_at=updated_at, id__lt=last_id))
    page = list(rows[: CONVERSATIONS_A_PAGE + 1])
    more = ""
    if len(page) > CONVERSATIONS_A_PAGE:
        page.pop()
        more = f"{page[-1].updated_at.isoformat()},{page[-1].pk}"
    return {"conversations": page, "more": more, "current": current}


def _moment(text: str) -> datetime | None:
    try:
        return parse_datetime(text)
    except ValueError:
        return None


def _settings_context(models: list[Model], model_id: str, settings: dict[str, Any]) -> dict[str, Any]:
    chosen = next((model for model in models if model.id == model_id), None)
    families: dict[str, list[Model]] = {}
    for model in models:
        families.setdefault(model.family, []).append(model)
    return {
        "families": families,
        "model_id": model_id,
        "model": chosen,
        "control": thinking_control(chosen or unknown_model(model_id)),
        "chat_settings": settings,
    }
