"""Who may open a view. Every view carries one of these marks; a test walks the urlconf for it.

`public`         anybody
`team_required`  somebody signed in, who has `request.team` and `request.membership`
`right_required` the same, and with that right in the team; without it the answer is 403
`staff_required` staff of the installation, signed in; to anybody else who is, the page does not exist

All take sync and async views. In an async view they load person and team first, so that the view
and its template may read `request.user` and `request.team` freely.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext

from accounts.key_epoch import NotTold
from accounts.middleware import aload
from accounts.rights import Right, require

type View = Callable[..., Any]


def public(view: View) -> View:
    return _marked(view, "public", lambda request: None)


def team_required(view: View) -> View:
    return _marked(view, "session", _sign_in_first)


def right_required(right: Right) -> Callable[[View], View]:
    def mark(view: View) -> View:
        def refuse(request: HttpRequest) -> HttpResponse | None:
            stranger = _sign_in_first(request)
            if stranger is None:
                require(request.membership, right)  # type: ignore[attr-defined]
            return stranger

        marked = _marked(view, "session", refuse)
        marked.right = right  # type: ignore[attr-defined]
        return marked

    return mark


def staff_required(view: View) -> View:
    return _marked(view, "staff", _staff_first)


def in_the_team_shown(view: View) -> View:
    """For a form that acts on `request.team`, below the mark: nothing is done where another tab has switched teams.

    The form says by `components/team_shown.html` which team its page showed; one that does not is taken at its word.
    """

    @wraps(view)
    def wrapper(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        shown = request.POST.get("team_shown")
        if shown is None or shown == str(request.team.pk):  # type: ignore[attr-defined]
            return cast(HttpResponseBase, view(request, *args, **kwargs))
        messages.error(
            request, gettext("You work in another team by now, so nothing was done. Look at it and try again.")
        )
        answer = redirect("accounts:team")
        if request.headers.get("HX-Request"):
            return HttpResponse(headers={"HX-Redirect": answer["Location"]})
        return answer

    return wrapper


def _staff_first(request: HttpRequest) -> HttpResponse | None:
    stranger = _sign_in_first(request)
    if stranger is None and not request.user.is_staff:
        raise Http404
    return stranger


def _sign_in_first(request: HttpRequest) -> HttpResponse | None:
    if request.user.is_authenticated:
        return None
    # A partial must not swap the sign-in page into the middle of another: the browser goes there instead,
    # and comes back to the page the reader was on rather than to the partial.
    if not request.headers.get("HX-Request"):
        return redirect_to_login(request.get_full_path(), settings.LOGIN_URL)
    page = request.htmx.current_url_abs_path if hasattr(request, "htmx") else None
    response = HttpResponse()
    response["HX-Redirect"] = redirect_to_login(page or request.get_full_path(), settings.LOGIN_URL)["Location"]
    return response


def _marked(view: View, access: str, refuse: Callable[[HttpRequest], HttpResponseBase | None]) -> View:
    wrapper = _async(view, refuse) if iscoroutinefunction(view) else _sync(view, refuse)
    wrapper.access = access  # type: ignore[attr-defined]
    return wrapper


def _sync(view: View, refuse: Callable[[HttpRequest], HttpResponseBase | None]) -> View:
    @wraps(view)
    def wrapper(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        try:
            return _varying(refuse(request) or view(request, *args, **kwargs))
        except NotTold:
            return render(request, "accounts/not_told.html", status=503)

    return wrapper


def _async(view: View, refuse: Callable[[HttpRequest], HttpResponseBase | None]) -> View:
    @wraps(view)
    async def wrapper(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        await aload(request)
        try:
            return _varying(refuse(request) or await _awaited(view(request, *args, **kwargs)))
        except NotTold:
            return render(request, "accounts/not_told.html", status=503)

    return wrapper


async def _awaited(answer: Awaitable[HttpResponseBase]) -> HttpResponseBase:
    return await answer


def _varying(response: HttpResponseBase) -> HttpResponseBase:
    """One URL answers a page or a partial; caches must keep the two apart."""
    patch_vary_headers(response, ["HX-Request"])
    return response
