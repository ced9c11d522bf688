"""Sharing with the team: the owner's dialog, and what a colleague sees."""

from __future__ import annotations

import uuid
from functools import partial
from typing import Any

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import right_required, team_required
from accounts.rights import Right
from playground import shares
from playground.chat_page import list_context, may_ask, own
from playground.models import Conversation, Image, Share
from playground.request import PersonRequest
from playground.transcript import shown
from playground.turn_views import picture_response


@team_required
@require_http_methods(["GET", "POST"])
def share(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    """What the dialog says; POST makes the link, or lets it show what has come since."""
    conversation = own(request, conversation_id)
    if request.method == "POST":
        shares.share(conversation=conversation)
    return _dialog(request, conversation)


@team_required
@require_POST
def unshare(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = own(request, conversation_id)
    shares.unshare(conversation=conversation)
    return _dialog(request, conversation)


def _dialog(request: PersonRequest, conversation: Conversation) -> HttpResponse:
    if not request.htmx:
        return redirect("playground:conversation", conversation.pk)
    share = Share.objects.filter(conversation=conversation).first()
    context: dict[str, Any] = {"conversation": conversation, "share": share, "oob": request.method == "POST"}
    if share is not None:
        context["link"] = request.build_absolute_uri(reverse("playground:shared", args=[share.token]))
        context["has_more"] = conversation.turns.filter(pk__gt=share.last_turn_id, deleted_at=None).exists()
    return render(request, "playground/share.html", context)


@team_required
@require_GET
def shared(request: PersonRequest, token: str) -> HttpResponse:
    share = _shared(request, token)
    tree, turns = shares.shared_turns(share)
    context = {
        "share": share,
        "conversation": share.conversation,
        "turns": shown(turns, tree=tree, image_url=partial(_image_url, token)),
        "may_copy": may_ask(request),
        "read_only": True,
    }
    return render(request, "playground/shared.html", context | list_context(request))


@team_required
@require_GET
def shared_image(request: PersonRequest, token: str, image_id: int) -> HttpResponse:
    _tree, turns = shares.shared_turns(_shared(request, token))
    return picture_response(Image.objects.filter(pk=image_id, turn__in=turns).first())


@right_required(Right.USE_MODELS)
@require_POST
def copy_shared(request: PersonRequest, token: str) -> HttpResponse:
    made = shares.copy(share=_shared(request, token), owner=request.user, team=request.team)
    return redirect("playground:conversation", made.pk)


def _image_url(token: str, image: Image) -> str:
    return reverse("playground:shared_image", args=[token, image.pk])


def _shared(request: PersonRequest, token: str) -> Share:
    try:
        return shares.shared_with(request.user, token)
    except Share.DoesNotExist:
        raise Http404 from None
