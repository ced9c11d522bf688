"""One turn: its stream and how it is stopped, its meter, its alternatives, its end."""

from __future__ import annotations

import json
import uuid

from asgiref.sync import sync_to_async
from django.conf import settings as site
from django.db import connections
from django.http import Http404, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.translation import get_language, ngettext
from django.views.decorators.http import require_GET, require_POST

from accounts.access import team_required
from playground import conversations as chats
from playground import generation
from playground.chat_page import own, own_turn, turns_context
from playground.models import Image, Turn
from playground.request import PersonRequest
from playground.stream import Followed, events
from playground.transcript import shown_one


@team_required
@require_GET
def turn(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    """The turn as it is now; what a page asks for when its stream broke, or an edit was given up."""
    turn = own_turn(request, conversation_id, turn_id)
    if not request.htmx:
        return redirect("playground:conversation", conversation_id)
    return render(request, "playground/turn.html", {"conversation": turn.conversation, "shown": shown_one(turn)})


@team_required
@require_GET
async def stream(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponseBase:
    turn = await sync_to_async(own_turn)(request, conversation_id, turn_id, Turn.Role.ASSISTANT)
    return await stream_of(request, [Followed(turn.pk, is_json=turn.is_json)])


async def stream_of(request: PersonRequest, turns: list[Followed], *, compares: bool = False) -> HttpResponseBase:
    async def end(turn_id: int) -> dict[str, str]:
        return await sync_to_async(_end)(request, turn_id, compares=compares)

    # The stream may last for minutes: the connection that loaded the turns goes back first.
    await sync_to_async(connections.close_all)()
    response = StreamingHttpResponse(
        events(turns, language=get_language() or site.LANGUAGE_CODE, end=end), content_type="text/event-stream"
    )
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return response


def _end(request: PersonRequest, turn_id: int, *, compares: bool) -> dict[str, str]:
    turn = Turn.objects.select_related("conversation").filter(pk=turn_id).first()
    if turn is None:
        return {"calls": "", "foot": ""}
    context = {"conversation": turn.conversation, "shown": shown_one(turn), "compares": compares}
    parts = ("answer", "calls", "foot") if turn.is_json and turn.content else ("calls", "foot")
    # An element that is to be empty has no white space either.
    return {part: render_to_string(f"playground/{part}.html", context, request).strip() for part in parts}


@team_required
@require_POST
async def stop(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    await sync_to_async(own_turn)(request, conversation_id, turn_id, Turn.Role.ASSISTANT)
    await generation.stop(turn_id=turn_id)
    return HttpResponse(status=204)


@team_required
@require_GET
def meter(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    turn = own_turn(request, conversation_id, turn_id, Turn.Role.ASSISTANT)
    if not request.htmx:
        return redirect("playground:conversation", conversation_id)
    attempt = request.GET.get("attempt", "")
    shown_turn = shown_one(turn, meter_attempt=int(attempt) if attempt.isdecimal() else 0)
    return render(request, "playground/meter.html", {"conversation": turn.conversation, "shown": shown_turn})


@team_required
@require_GET
def image(request: PersonRequest, conversation_id: uuid.UUID, image_id: int) -> HttpResponse:
    found = Image.objects.filter(pk=image_id, turn__conversation=own(request, conversation_id)).first()
    return picture_response(found)


def picture_response(image: Image | None) -> HttpResponse:
    """Whatever the bytes are, they are a picture here: its type was read from them, and nothing in it runs."""
    if image is None:
        raise Http404
    response = HttpResponse(bytes(image.data), content_type=image.media_type)
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Content-Disposition"] = "inline"
    response["Cache-Control"] = "private, max-age=86400, immutable"
    return response


# -- alternatives ----------------------------------------------------------------------------------


@team_required
@require_POST
def show_branch(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    """The alternative in its place; from a comparison the chat that goes on with it."""
    turn = own_turn(request, conversation_id, turn_id)
    if not request.htmx:
        chats.go_on_with(turn=turn)
        return redirect("playground:conversation", conversation_id)
    chats.show_branch(turn=turn)
    return _turns(request, turn)


@team_required
@require_POST
async def delete_turn(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    turn = await sync_to_async(own_turn)(request, conversation_id, turn_id)
    removed = await sync_to_async(chats.delete_turn)(turn=turn)
    for streaming in removed.streaming:
        await generation.stop(turn_id=streaming)
    response = await sync_to_async(_turns)(request, turn)
    text = ngettext("Message deleted.", "Message deleted, with what followed it: %(count)d in all.", removed.count)
    undo = reverse("playground:restore_turn", args=[conversation_id, turn_id])
    response["HX-Trigger"] = undo_event(text % {"count": removed.count}, undo)
    return response


@team_required
@require_POST
def restore_turn(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int) -> HttpResponse:
    conversation = own(request, conversation_id)
    turn = conversation.turns.filter(pk=turn_id).first()
    if turn is None:
        raise Http404
    turn.conversation = conversation
    chats.restore_turn(turn=turn)
    return _turns(request, turn)


def undo_event(text: str, url: str) -> str:
    """For the HX-Trigger header, which is ASCII: the page shows the text with a button that posts to `url`."""
    return json.dumps({"undoable": {"text": text, "url": url}})


def _turns(request: PersonRequest, turn: Turn) -> HttpResponse:
    context = turns_context(turn.conversation, around=turn.pk)
    return render(request, "playground/chat.html#path", context | {"oob": True})
