"""The pages of a team's keys. A new secret is in one answer and nowhere else."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.access import in_the_team_shown, right_required
from accounts.audit import Actor
from accounts.forms import ChangeKeyForm, LeakedKeyForm, NewKeyForm, RotateForm
from accounts.keys import (
    SECRET_PATTERN,
    KeyChanged,
    change_key,
    disable_key,
    enable_key,
    find_key_by_secret,
    issue_key,
    revoke_key,
    rotate_key,
)
from accounts.middleware import TeamRequest
from accounts.models import ApiKey
from accounts.rights import Right, manageable_keys, may

KEYS_PER_PAGE = 50


@right_required(Right.READ)
@require_GET
def keys(request: TeamRequest) -> HttpResponse:
    return _page(request, "key-list" if request.htmx else None, listing=_listing(request))


@right_required(Right.CREATE_KEYS)
@in_the_team_shown
@never_cache
@sensitive_variables("issued")
@require_http_methods(["GET", "HEAD", "POST"])
def create_key(request: TeamRequest) -> HttpResponse:
    form = NewKeyForm(request.POST or None, proposed_days=request.team.default_key_days)
    if not form.is_valid():
        return _page(request, "key-form" if request.htmx else None, form=form, listing=_listing(request))
    issued = issue_key(
        team=request.team,
        created_by=request.user,
        name=form.cleaned_data["name"],
        terms=form.terms(),
        by=request.membership,
        actor=Actor.of(request),
    )
    return _page(request, "key-issued-and-list" if request.htmx else None, issued=issued, listing=_listing(request))


@right_required(Right.READ)
@require_GET
def key(request: TeamRequest, key_id: int) -> HttpResponse:
    return _key_page(request, get_object_or_404(request.team.api_keys.select_related("created_by"), pk=key_id))


@right_required(Right.MANAGE_OWN_KEYS)
@require_POST
def change(request: TeamRequest, key_id: int) -> HttpResponse:
    found = _managed(request, key_id)
    with timezone.override(request.team.time_zone):
        form = ChangeKeyForm.of(found, request.POST)
        if not form.is_valid():
            return _key_page(request, found, form=form, status=422)
    try:
        change_key(key=found, name=form.cleaned_data["name"], terms=form.terms(), actor=Actor.of(request))
    except KeyChanged:
        messages.error(request, gettext("The key has been revoked in the meantime."))
    else:
        messages.success(request, gettext("Saved. The next request with this key is held to it."))
    return redirect("accounts:key", key_id)


@right_required(Right.MANAGE_OWN_KEYS)
@never_cache
@sensitive_variables("issued")
@require_POST
def rotate(request: TeamRequest, key_id: int) -> HttpResponse:
    found = _managed(request, key_id)
    form = RotateForm(request.POST)
    if not form.is_valid():
        return _key_page(request, found, rotate_form=form, status=422)
    try:
        issued = rotate_key(key=found, grace_seconds=form.cleaned_data["grace"], actor=Actor.of(request))
    except KeyChanged:
        messages.error(request, gettext("The key was rotated or revoked in the meantime. Look at it again."))
        return redirect("accounts:key", key_id)
    return _key_page(request, found, issued=issued)


@right_required(Right.MANAGE_OWN_KEYS)
@require_POST
def disable(request: TeamRequest, key_id: int) -> HttpResponse:
    disable_key(key=_managed(request, key_id), actor=Actor.of(request))
    return redirect("accounts:key", key_id)


@right_required(Right.MANAGE_OWN_KEYS)
@require_POST
def enable(request: TeamRequest, key_id: int) -> HttpResponse:
    enable_key(key=_managed(request, key_id), actor=Actor.of(request))
    return redirect("accounts:key", key_id)


@right_required(Right.MANAGE_OWN_KEYS)
@require_POST
def revoke(request: TeamRequest, key_id: int) -> HttpResponse:
    revoke_key(key=_managed(request, key_id), actor=Actor.of(request))
    if request.htmx:
        return _page(request, "key-list", listing=_listing(request))
    return redirect("accounts:keys")


# Whoever holds a secret could use it: that he may end it as well needs no other right, in whatever team it is.
@right_required(Right.READ)
@never_cache
@sensitive_post_parameters("secret")
@sensitive_variables("form", "pasted", "secret")
@require_http_methods(["GET", "HEAD", "POST"])
def leaked(request: TeamRequest) -> HttpResponse:
    form = LeakedKeyForm(request.POST if request.method == "POST" else None)
    # What was pasted is not sent back: a page may be kept, or photographed.
    context: dict[str, Any] = {"form": LeakedKeyForm(), "problems": form.errors.get("secret")}
    if form.is_valid():
        pasted = dict.fromkeys(SECRET_PATTERN.findall(form.cleaned_data["secret"]))
        context["outcomes"] = [_revoked(secret, Actor.of(request)) for secret in pasted]
        context["tried"] = True
    return render(request, "accounts/leaked.html", context, status=422 if form.errors else 200)


@sensitive_variables("secret")
def _revoked(secret: str, actor: Actor) -> tuple[str, ApiKey | None]:
    """What became of the key of a secret that was pasted."""
    found = find_key_by_secret(secret)
    if found is None:
        return "unknown", None
    before = found.revoked_at is not None
    revoke_key(key=found, actor=actor)
    return ("before" if before else "now"), found


def _managed(request: TeamRequest, key_id: int) -> ApiKey:
    return get_object_or_404(manageable_keys(request.membership).select_related("team"), pk=key_id)


def _listing(request: TeamRequest) -> Page[ApiKey]:
    page = Paginator(ApiKey.objects.filter(team=request.team).listed(), KEYS_PER_PAGE).get_page(request.GET.get("page"))
    manageable = set(manageable_keys(request.membership).values_list("pk", flat=True))
    for key in page:
        key.may_revoke = key.pk in manageable and not key.revoked_at  # type: ignore[attr-defined]
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


def _key_page(request: TeamRequest, key: ApiKey, *, status: int = 200, **context: Any) -> HttpResponse:
    may_manage = not key.revoked_at and manageable_keys(request.membership).filter(pk=key.pk).exists()
    if may_manage:
        context = {"form": ChangeKeyForm.of(key), "rotate_form": RotateForm()} | context
    return render(
        request,
        "accounts/key.html",
        {
            "key": key,
            "may_manage": may_manage,
            "in_grace": bool(key.previous_until and key.previous_until > timezone.now()),
            "site_rpm": settings.RATE_LIMIT_KEY_RPM,
            "site_concurrency": settings.RATE_LIMIT_KEY_CONCURRENCY,
            "base_url": f"{request.scheme}://{request.get_host()}",
        }
        | context,
        status=status,
    )
