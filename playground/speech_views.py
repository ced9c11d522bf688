"""Speech: a text is typed, and a model speaks it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings as site
from django.db import connections
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET, require_POST

from accounts.access import right_required, team_required
from accounts.rights import Right
from gateway.catalog import Endpoint
from playground import speaking
from playground.byte_range import parse_range
from playground.call_failure import CallFailed, problem_of
from playground.endpoint_examples import speech_examples
from playground.history import Speech
from playground.history_list import history_of, own
from playground.offers import Offer, chosen_of, offers_of
from playground.problems import Problem
from playground.request import PersonRequest, caller_of
from playground.speech_form import SAMPLES, SpeechForm
from playground.spending import spending_of

# By the format asked for: what the file is called when it is saved.
NOT_PLAYED = ("pcm",)


# -- pages -------------------------------------------------------------------------------------


@team_required
@require_GET
def speech(request: PersonRequest) -> HttpResponse:
    offers = offers_of(request, Endpoint.SPEECH)
    form = SpeechForm(offers=offers, initial={"model": request.GET.get("model", "")})
    context = _form_context(offers, form) | {"samples": SAMPLES} | history_of(request, Speech)
    return render(request, "playground/speech.html", context)


@team_required
@require_GET
def speech_list(request: PersonRequest) -> HttpResponse:
    """The next page of the list."""
    if not request.htmx:
        return redirect("playground:speech")
    return render(request, "playground/speech.html#rows", history_of(request, Speech))


@team_required
@require_POST
def speech_code(request: PersonRequest) -> HttpResponse:
    form = SpeechForm(request.POST, offers=offers_of(request, Endpoint.SPEECH))
    body = form.body() if form.is_valid() else form.sample_body()
    return render(request, "playground/code.html", {"examples": speech_examples(body=body, site_url=site.SITE_URL)})


@team_required
@require_GET
def spoken(request: PersonRequest, speech_id: uuid.UUID) -> HttpResponse:
    found = _as_it_is(own(request, Speech, speech_id))
    offers = offers_of(request, Endpoint.SPEECH)
    form = SpeechForm(offers=offers, initial={**found.settings, "model": found.model, "text": found.text})
    context = _form_context(offers, form) | _result(found) | history_of(request, Speech, current=found)
    return render(request, "playground/speech.html", context)


# -- speaking ----------------------------------------------------------------------------------


@right_required(Right.USE_MODELS)
@require_POST
async def speak(request: PersonRequest) -> HttpResponse:
    offers = await sync_to_async(offers_of)(request, Endpoint.SPEECH)
    form = SpeechForm(request.POST, offers=offers)
    if not form.is_valid():
        return await _refused(request, Problem(form.first_error(), ""))
    wish = speaking.Wish(request.user, request.team, caller_of(request), form.body())
    try:
        begun = await speaking.begin(wish)
    except CallFailed as failure:
        return await _refused(request, problem_of(failure.kept), failure)
    response = await sync_to_async(_show)(request, begun)
    response["HX-Push-Url"] = reverse("playground:spoken", args=[begun.pk])
    return response


def _show(request: PersonRequest, begun: Speech) -> HttpResponse:
    if not request.htmx:
        return redirect("playground:spoken", begun.pk)
    context = _result(begun) | {"fresh": True, "oob": True} | history_of(request, Speech, current=begun)
    return render(request, "playground/speech.html#spoken", context)


@team_required
@require_GET
def speech_state(request: PersonRequest, speech_id: uuid.UUID) -> HttpResponse:
    """What stands under the player, once the sound is complete; 204 until then."""
    found = _as_it_is(own(request, Speech, speech_id))
    if not request.htmx:
        return redirect("playground:spoken", speech_id)
    if found.is_working:
        return HttpResponse(status=204)
    return render(request, "playground/speech.html#state", _result(found))


# -- one speech --------------------------------------------------------------------------------


@team_required
@require_GET
async def speech_sound(request: PersonRequest, speech_id: uuid.UUID) -> HttpResponseBase:
    found = await sync_to_async(lambda: _as_it_is(own(request, Speech, speech_id)))()
    size = await sync_to_async(_size_of)(found)
    # What follows may last: the connection that loaded it goes back first.
    await sync_to_async(connections.close_all)()
    if found.is_working:
        return _sound(found, speaking.listen(found.pk))
    wanted = parse_range(request.headers.get("Range", ""), size=size)
    if wanted is None:
        response = _sound(found, speaking.listen(found.pk), length=size)
    elif wanted.length:
        pieces = speaking.part(found.pk, first=wanted.first, last=wanted.last)
        response = _sound(found, pieces, length=wanted.length, status=206)
        response["Content-Range"] = f"bytes {wanted.first}-{wanted.last}/{size}"
    else:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    response["Accept-Ranges"] = "bytes"
    if "download" in request.GET:
        name = f"{found.pk.hex[:8]}.{found.format}"
        response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
    return response


def _sound(
    speech: Speech, pieces: AsyncIterator[bytes], *, length: int | None = None, status: int = 200
) -> StreamingHttpResponse:
    response = StreamingHttpResponse(pieces, status=status, content_type=_safe_type(speech.content_type))
    response["Cache-Control"] = "private, no-store" if speech.is_working else "private, max-age=86400"
    response["X-Accel-Buffering"] = "no"
    if length is not None:
        response["Content-Length"] = str(length)
    return response


def _safe_type(content_type: str) -> str:
    """The model server's own word for it, as long as it is a kind of sound: this site serves it."""
    return content_type if content_type.lower().startswith("audio/") else "application/octet-stream"


@team_required
@require_GET
def speech_points(request: PersonRequest, speech_id: uuid.UUID) -> HttpResponse:
    found = own(request, Speech, speech_id)
    if not request.htmx:
        return redirect("playground:spoken", speech_id)
    attempt = request.GET.get("attempt", "")
    spending = spending_of([found.request_id], attempt=int(attempt) if attempt.isdecimal() else 0)
    return render(request, "playground/speech.html#points", {"speech": found, "spending": spending})


@team_required
@require_POST
def delete_speech(request: PersonRequest, speech_id: uuid.UUID) -> HttpResponse:
    own(request, Speech, speech_id).delete()
    if not request.htmx:
        return redirect("playground:speech")
    return HttpResponse(headers={"HX-Redirect": reverse("playground:speech")})


# -- what the templates need --------------------------------------------------------------------


def _as_it_is(speech: Speech) -> Speech:
    """One that nobody speaks any more says so."""
    if speech.is_working and Speech.objects.filter(pk=speech.pk).close_cut_off():
        speech.refresh_from_db()
    return speech


def _size_of(speech: Speech) -> int:
    last = speech.pieces.order_by("-first_byte").values_list("end_byte", flat=True).first()
    return last or 0


def _form_context(offers: list[Offer], form: SpeechForm) -> dict[str, Any]:
    chosen = chosen_of(offers, str(form["model"].value() or ""))
    return {"offers": offers, "chosen": chosen, "form": form}


def _result(speech: Speech) -> dict[str, Any]:
    return {
        "speech": speech,
        "plays": speech.format not in NOT_PLAYED,
        "size": _size_of(speech),
        "problem": problem_of(speech.error) if speech.error else None,
        "spending": spending_of([speech.request_id]) if not speech.is_working else None,
    }


async def _refused(request: PersonRequest, problem: Problem, failure: CallFailed | None = None) -> HttpResponse:
    """What was typed stays in the form."""
    context = {"problem": problem, "request_id": failure.kept.get("request_id") if failure else None}
    return await sync_to_async(render)(request, "playground/problem.html", context, status=422)
