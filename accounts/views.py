"""The page of a team's keys. A new key's secret is in one answer and nowhere else."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import team_required
from accounts.forms import NewKeyForm
from accounts.keys import issue_key, revoke_key
from accounts.middleware import TeamRequest
from accounts.models import ApiKey
from accounts.rights import Right, may, require, revocable_keys

KEYS_PER_PAGE = 50


@team_required
@require_GET
def keys(request: TeamRequest) -> HttpResponse:
    return _page(request, "key-list" if request.htmx else None, listing=_listing(request))


@team_required
@never_cache
@sensitive_variables("issued")
@require_http_methods(["GET", "HEAD", "POST"])
def create_key(request: TeamRequest) -> HttpResponse:
    require(request.membership, Right.CREATE_KEYS)
    form = NewKeyForm(request.POST or None)
    if not form.is_valid():
        return _page(request, "key-form" if request.htmx else None, form=form, listing=_listing(request))
    issued = issue_key(
        team=request.team, created_by=request.user, name=form.cleaned_data["name"], expires_at=form.expires_at()
    )
    return _page(request, "key-issued-and-list" if request.htmx else None, issued=issued, listing=_listing(request))


@team_required
@require_POST
def revoke(request: TeamRequest, key_id: int) -> HttpResponse:
    revoke_key(key=get_object_or_404(revocable_keys(request.membership), pk=key_id))
    if request.htmx:
        return _page(request, "key-list", listing=_listing(request))
    return redirect("accounts:keys")


def _listing(request: TeamRequest) -> Page[ApiKey]:
    page = Paginator(ApiKey.objects.filter(team=request.team).listed(), KEYS_PER_PAGE).get_page(request.GET.get("page"))
    revocable = set(revocable_keys(request.membership).values_list("pk", flat=True))
    for key in page:
        key.may_revoke = key.pk in revocable and not key.revoked_at  # type: ignore[attr-defined]
    return page


def _page(request: TeamRequest, partial: str | None, **context: Any) -> HttpResponse:
    template = f"accounts/keys.html#{partial}" if partial else "accounts/keys.html"
    return render(
        request,
        template,
        context
        | {
            "may_create": may(request.membership, Right.CREATE_KEYS),
            "base_url": f"{request.scheme}://{request.get_host()}",
        },
    )
