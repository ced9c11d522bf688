"""/team/endpoints/: a team's own model servers. Members read; who may change the team's settings changes them."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import in_the_team_shown, right_required
from accounts.audit import Actor
from accounts.middleware import TeamRequest
from accounts.models import Team
from accounts.rights import Right, may
from gateway.endpoint_probe import ProbeFailed, probe
from gateway.endpoints import delete_endpoint, register_endpoint, switch_endpoint, target_of
from gateway.forms import EndpointForm
from gateway.models import DedicatedEndpoint, EndpointQuerySet


@right_required(Right.READ)
@require_GET
def endpoints(request: TeamRequest) -> HttpResponse:
    return _page(request)


@right_required(Right.CHANGE_SETTINGS)
@in_the_team_shown
@sensitive_post_parameters("api_key")
@require_http_methods(["GET", "HEAD", "POST"])
def add(request: TeamRequest) -> HttpResponse:
    form = EndpointForm(request.POST or None)
    if not form.is_valid():
        return _page(request, form=form, status=422 if form.is_bound else 200)
    register_endpoint(team=request.team, created_by=request.user, actor=Actor.of(request), **form.cleaned_data)
    return redirect("gateway:endpoints")


@right_required(Right.CHANGE_SETTINGS)
@require_POST
async def test(request: TeamRequest, endpoint_id: int) -> HttpResponse:
    endpoint = await sync_to_async(_endpoint)(request, endpoint_id)
    result: dict[str, Any] = {"endpoint_id": endpoint.pk}
    try:
        result["models"] = await probe(target_of(endpoint))
    except ProbeFailed as failed:
        result["problem"] = str(failed)
    return await sync_to_async(_page)(request, result=result)


@right_required(Right.CHANGE_SETTINGS)
@require_POST
def switch(request: TeamRequest, endpoint_id: int) -> HttpResponse:
    switch_endpoint(endpoint=_endpoint(request, endpoint_id), on=request.POST.get("on") == "1", actor=Actor.of(request))
    return _page(request) if request.htmx else redirect("gateway:endpoints")


@right_required(Right.CHANGE_SETTINGS)
@require_POST
def delete(request: TeamRequest, endpoint_id: int) -> HttpResponse:
    delete_endpoint(endpoint=_endpoint(request, endpoint_id), actor=Actor.of(request))
    return _page(request) if request.htmx else redirect("gateway:endpoints")


def _of(team: Team) -> EndpointQuerySet:
    return DedicatedEndpoint.objects.filter(team=team)


def _endpoint(request: TeamRequest, endpoint_id: int) -> DedicatedEndpoint:
    return get_object_or_404(_of(request.team), pk=endpoint_id)


def _page(request: TeamRequest, *, status: int = 200, **context: Any) -> HttpResponse:
    template = "gateway/endpoints.html"
    if request.htmx and "form" not in context:
        template += "#endpoint-list"
    context |= {
        "endpoints": list(_of(request.team)),
        "may_change": may(request.membership, Right.CHANGE_SETTINGS),
        "base_url": _base_url(request),
    }
    return render(request, template, context, status=status)


def _base_url(request: HttpRequest) -> str:
    return f"{request.scheme}://{request.get_host()}"
