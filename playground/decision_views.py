"""Decisions: a state and questions are written, and every possible answer gets its probability."""

from __future__ import annotations

import json
import uuid
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings as site
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_POST

from accounts.access import right_required, team_required
from accounts.rights import Right
from gateway.catalog import Endpoint
from playground import deciding
from playground.call_failure import CallFailed, problem_of
from playground.code_python import picture_mark
from playground.decision_answer import shown_answers
from playground.decision_pictures import Unfit, kinds_for, pictures_in
from playground.decision_samples import SAMPLES, sample_of
from playground.endpoint_examples import decision_examples
from playground.history import Decision, DecisionPicture
from playground.history_list import history_of, own
from playground.markdown import code_html
from playground.offers import Offer, chosen_of, offers_of
from playground.problems import Problem
from playground.questions import KINDS, Malformed, Question, questions_in, questions_of, request_of
from playground.request import PersonRequest, caller_of
from playground.spending import spending_of

MAX_STATE_LENGTH = 400_000


# -- pages -------------------------------------------------------------------------------------


@team_required
@require_GET
def decisions(request: PersonRequest) -> HttpResponse:
    sample = sample_of(request.GET.get("sample", ""))
    asked = [Question()] if sample is None else questions_of(sample.questions)
    context = _form_context(request, model=request.GET.get("model", "")) | {
        "state": sample.state if sample else "",
        "questions": asked,
        "samples": SAMPLES,
        "sample": sample,
    }
    return render(request, "playground/decisions.html", context | history_of(request, Decision))


@team_required
@require_GET
def decisions_list(request: PersonRequest) -> HttpResponse:
    """The next page of the list."""
    if not request.htmx:
        return redirect("playground:decisions")
    return render(request, "playground/decisions.html#rows", history_of(request, Decision))


@team_required
@require_GET
def decision_question(request: PersonRequest) -> HttpResponse:
    """One more question to be filled in."""
    if not request.htmx:
        return redirect("playground:decisions")
    kind = request.GET.get("kind", "")
    question = Question(kind=kind if kind in KINDS else "choice")
    return render(request, "playground/question.html", {"question": question, "fresh": True})


@team_required
@require_POST
def decisions_code(request: PersonRequest) -> HttpResponse:
    offers = offers_of(request, Endpoint.SYSTEMONE)
    chosen = chosen_of(offers, request.POST.get("model", ""))
    try:
        questions = request_of(questions_in(request.POST))
        state = request.POST.get("state", "").strip() or SAMPLES[0].state
    except Malformed:
        questions, state = SAMPLES[0].questions, SAMPLES[0].state
    body: dict[str, Any] = {"model": chosen.model.id if chosen else "d3", "state": state}
    kinds = _kinds_attached(request)
    if "image" in kinds:
        body["images"] = [picture_mark("image/png", "picture.png")]
    if "video" in kinds:
        body["videos"] = [picture_mark("video/mp4", "video.mp4")]
    examples = decision_examples(body=body | {"questions": questions}, site_url=site.SITE_URL)
    return render(request, "playground/code.html", {"examples": examples})


@team_required
@require_GET
def decision(request: PersonRequest, decision_id: uuid.UUID) -> HttpResponse:
    found = own(request, Decision, decision_id)
    context = _form_context(request, model=found.model) | {
        "state": found.state,
        "questions": questions_of(found.questions),
        "pictures": found.pictures.defer("data"),
    }
    context |= _result(found) | history_of(request, Decision, current=found)
    return render(request, "playground/decisions.html", context)


# -- deciding ----------------------------------------------------------------------------------


@right_required(Right.USE_MODELS)
@require_POST
async def decide(request: PersonRequest) -> HttpResponse:
    try:
        wish = await sync_to_async(_wish)(request)
        made = await deciding.decide(wish)
    except (Malformed, Unfit) as error:
        return await _refused(request, Problem(str(error), ""))
    except CallFailed as failure:
        return await _refused(request, problem_of(failure.kept), failure)
    response = await sync_to_async(_show)(request, made)
    response["HX-Push-Url"] = reverse("playground:decision", args=[made.pk])
    return response


def _wish(request: PersonRequest) -> deciding.Wish:
    """Raises Malformed, Unfit."""
    offers = offers_of(request, Endpoint.SYSTEMONE)
    offer = next((offer for offer in offers if offer.model.id == request.POST.get("model")), None)
    if offer is None:
        raise Malformed(gettext("This model cannot be used at the moment. Choose another one."))
    state = request.POST.get("state", "").replace("\r\n", "\n").replace("\x00", "")
    if not state.strip():
        raise Malformed(gettext("Describe the state first: what is to be decided about?"))
    if len(state) > MAX_STATE_LENGTH:
        raise Malformed(gettext("The state is too long."))
    return deciding.Wish(
        owner=request.user,
        team=request.team,
        caller=caller_of(request),
        model=offer.model.id,
        state=state,
        questions=request_of(questions_in(request.POST)),
        pictures=tuple(pictures_in(request, model=offer.model)),
    )


def _show(request: PersonRequest, made: Decision) -> HttpResponse:
    if not request.htmx:
        return redirect("playground:decision", made.pk)
    context = _result(made) | {"oob": True} | history_of(request, Decision, current=made)
    return render(request, "playground/decisions.html#decided", context)


# -- one decision ------------------------------------------------------------------------------


@team_required
@require_GET
def decision_picture(request: PersonRequest, decision_id: uuid.UUID, picture_id: int) -> HttpResponse:
    found = own(request, Decision, decision_id).pictures.filter(pk=picture_id).first()
    if found is None:
        raise Http404
    response = HttpResponse(bytes(found.data), content_type=found.media_type)
    response["Cache-Control"] = "private, max-age=86400, immutable"
    return response


@team_required
@require_GET
def decision_points(request: PersonRequest, decision_id: uuid.UUID) -> HttpResponse:
    found = own(request, Decision, decision_id)
    if not request.htmx:
        return redirect("playground:decision", decision_id)
    attempt = request.GET.get("attempt", "")
    spending = spending_of([found.request_id], attempt=int(attempt) if attempt.isdecimal() else 0)
    return render(request, "playground/decisions.html#points", {"decision": found, "spending": spending})


@team_required
@require_POST
def delete_decision(request: PersonRequest, decision_id: uuid.UUID) -> HttpResponse:
    own(request, Decision, decision_id).delete()
    if not request.htmx:
        return redirect("playground:decisions")
    return HttpResponse(headers={"HX-Redirect": reverse("playground:decisions")})


# -- what the templates need --------------------------------------------------------------------


def _form_context(request: PersonRequest, *, model: str) -> dict[str, Any]:
    offers: list[Offer] = offers_of(request, Endpoint.SYSTEMONE)
    models = [offer.model for offer in offers]
    return {
        "offers": offers,
        "chosen": chosen_of(offers, model),
        "kinds": ",".join(kinds_for(models)),
        "limited": [model for model in models if model.max_images],
        "video_models": ", ".join(model.id for model in models if "video" in model.input_modalities),
    }


def _kinds_attached(request: PersonRequest) -> set[str]:
    """`image`, `video`: of the files chosen in the form, which are not sent along, and of those to be sent again."""
    kept = [int(id) for id in request.POST.getlist("picture") if id.isdecimal()]
    mine = DecisionPicture.objects.filter(pk__in=kept, decision__in=Decision.objects.of(request.user, request.team))
    types = [*request.POST.get("attached", "").split(","), *mine.values_list("media_type", flat=True)]
    return {media_type.partition("/")[0] for media_type in types}


def _result(decision: Decision) -> dict[str, Any]:
    answers = decision.answers.get("answers")
    return {
        "decision": decision,
        "answers": shown_answers(decision.questions, answers if isinstance(answers, dict) else {}),
        "json": code_html(json.dumps(decision.answers, ensure_ascii=False, indent=2), "json"),
        "spending": spending_of([decision.request_id]),
    }


async def _refused(request: PersonRequest, problem: Problem, failure: CallFailed | None = None) -> HttpResponse:
    """What was typed stays in the form."""
    context = {"problem": problem, "request_id": failure.kept.get("request_id") if failure else None}
    return await sync_to_async(render)(request, "playground/problem.html", context, status=422)
