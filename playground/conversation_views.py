"""A whole conversation: its name, its place in the list, its end, and taking it along."""

from __future__ import annotations

import uuid

from asgiref.sync import sync_to_async
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import team_required
from playground import conversations as chats
from playground import generation
from playground.chat_page import list_context, own
from playground.export import as_json, as_markdown, file_name
from playground.models import Conversation
from playground.request import PersonRequest
from playground.turn_views import undo_event


@team_required
@require_http_methods(["GET", "POST"])
def rename(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = own(request, conversation_id)
    if request.method == "GET":
        return render(request, "playground/rename.html", {"conversation": conversation})
    chats.rename(conversation=conversation, title=request.POST.get("title", ""))
    return _changed(request, conversation)


@team_required
@require_POST
def pin(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    """To the top of the list, or back where it belongs."""
    conversation = own(request, conversation_id)
    chats.set_pinned(conversation=conversation, pinned=conversation.pinned_at is None)
    return _changed(request, conversation)


@team_required
@require_POST
async def delete(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = await sync_to_async(own)(request, conversation_id)
    for turn_id in await sync_to_async(chats.delete)(conversation=conversation):
        await generation.stop(turn_id=turn_id)
    if not request.htmx:
        return redirect("playground:chat")
    response = await sync_to_async(_list)(request)
    text = gettext("“%s” was deleted.") % conversation.title
    response["HX-Trigger"] = undo_event(text, reverse("playground:restore", args=[conversation_id]))
    return response


@team_required
@require_POST
def restore(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    try:
        chats.restore(user=request.user, team=request.team, conversation_id=conversation_id)
    except Conversation.DoesNotExist:
        raise Http404 from None
    return _list(request)


@team_required
@require_GET
def export(request: PersonRequest, conversation_id: uuid.UUID, form: str) -> HttpResponse:
    conversation = own(request, conversation_id)
    text, media_type = (
        (as_json(conversation), "application/json")
        if form == "json"
        else (as_markdown(conversation), "text/markdown; charset=utf-8")
    )
    headers = {"Content-Disposition": file_name(conversation, ending=form), "Cache-Control": "no-store"}
    return HttpResponse(text, content_type=media_type, headers=headers)


def _changed(request: PersonRequest, conversation: Conversation) -> HttpResponse:
    """The list, and the head of the page where this is the conversation on it."""
    if not request.htmx:
        return redirect("playground:conversation", conversation.pk)
    current = conversation if str(conversation.pk) in (request.htmx.current_url or "") else None
    context = {"conversation": current, "oob": True} | list_context(
        request, current=current, query=request.POST.get("q", "")
    )
    return render(request, "playground/chat.html#renamed", context)


def _list(request: PersonRequest) -> HttpResponse:
    context = list_context(request, query=request.POST.get("q", ""))
    return render(request, "playground/list.html#list", context | {"oob": True})
