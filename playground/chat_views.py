"""The chat's pages and their parts that only read."""

from __future__ import annotations

import uuid

from django.conf import settings as site
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_POST

from accounts.access import team_required
from playground import chat_page
from playground.branches import tree_of, turns_of
from playground.chat_page import list_context, own, settings_context, turns_context
from playground.code_examples import chat_examples
from playground.code_python import picture_mark
from playground.messages import messages_of
from playground.models import Image, Turn
from playground.request import PersonRequest, chat_models
from playground.settings_form import SettingsForm, as_typed
from playground.starters import STARTERS


@team_required
@require_GET
def new_chat(request: PersonRequest) -> HttpResponse:
    models = chat_models(request)
    chosen = next((model for model in models if model.id == request.GET.get("model")), models[0] if models else None)
    context = settings_context(models, chosen.id if chosen else "", {}) | list_context(request)
    return render(
        request, "playground/chat.html", context | {"draft": request.GET.get("prompt", ""), "starters": STARTERS}
    )


@team_required
@require_GET
def conversation(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversation = own(request, conversation_id)
    context = turns_context(conversation, before=request.GET.get("before", ""))
    if request.htmx and "before" in request.GET:
        return render(request, "playground/turns.html", context)
    context |= settings_context(chat_models(request), conversation.model, as_typed(conversation.settings))
    return render(request, "playground/chat.html", context | list_context(request, current=conversation))


@team_required
@require_GET
def news(request: PersonRequest, conversation_id: uuid.UUID) -> HttpResponse:
    """What another tab or device did since this page was loaded; 204 where that is nothing."""
    conversation = own(request, conversation_id)
    if not request.htmx:
        return redirect("playground:conversation", conversation_id)
    first, last = (request.GET.get(name, "") for name in ("first", "last"))
    found = chat_page.news(
        conversation,
        mark=request.GET.get("mark", ""),
        first=int(first) if first.isdecimal() else 0,
        last=int(last) if last.isdecimal() else 0,
    )
    if found is None:
        return HttpResponse(status=204)
    response = render(request, "playground/chat.html#path", found.context | {"oob": True})
    response["HX-Reswap"] = "beforeend" if found.appended else "innerHTML"
    return response


@team_required
@require_GET
def conversations(request: PersonRequest) -> HttpResponse:
    """The next page of the list, or what a search finds."""
    if not request.htmx:
        return redirect("playground:chat")
    context = list_context(request, after=request.GET.get("after", ""), query=request.GET.get("q", ""))
    return render(request, "playground/list.html#rows", context)


@team_required
@require_POST
def model_controls(request: PersonRequest) -> HttpResponse:
    """What the chosen model lets one set, with what the fields hold already. Changes nothing."""
    context = settings_context(chat_models(request), request.POST.get("model", ""), request.POST.dict())
    return render(request, "playground/controls.html", context)


@team_required
@require_POST
def code(request: PersonRequest) -> HttpResponse:
    """The request that Send would make now, as code. Changes nothing."""
    form = SettingsForm(request.POST, models=chat_models(request))
    if not form.is_valid():
        return render(request, "playground/code.html", {"form": form})
    chosen = form.chosen()
    turns = _history(request)
    draft = request.POST.get("message", "").strip()
    if draft:
        turns.append(Turn(role=Turn.Role.USER, content=draft))
    elif turns and turns[-1].role == Turn.Role.ASSISTANT:
        turns.pop()  # nothing to send now: show the request that was answered last
    messages = messages_of(turns, sees_images=chosen.model.sees_images, url_of=_file_of)
    body = chosen.body(messages or [{"role": "user", "content": gettext("Hello!")}])
    examples = chat_examples(body=body, site_url=site.SITE_URL, portable=chosen.portable)
    return render(request, "playground/code.html", {"examples": examples})


def _file_of(image: Image) -> str:
    """In code a picture is a file to be read, not a megabyte of letters."""
    ending = image.media_type.removeprefix("image/").replace("jpeg", "jpg")
    return picture_mark(image.media_type, f"picture-{image.pk}.{ending}")


def _history(request: PersonRequest) -> list[Turn]:
    """The path up to the last turn that the page shows."""
    try:
        conversation = own(request, uuid.UUID(request.POST.get("conversation", "")))
    except ValueError:
        return []
    parent = request.POST.get("parent", "")
    tree = tree_of(conversation)
    return turns_of(conversation, tree.path_to(int(parent)) if parent.isdecimal() else tree.path())
