"""`request.team` and `request.membership`: the team a signed-in person works in, and as what.

Both are looked up when first asked for. Nothing is read here, so an async view pays no thread for
it; there `await request.ateam()` does the same, and afterwards the attributes are plain values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponseBase
from django.utils.functional import SimpleLazyObject
from django_htmx.middleware import HtmxDetails

from accounts.models import Membership, Team, User
from accounts.teams import current_membership


class TeamRequest(HttpRequest):
    """A request behind `team_required`, as its view may rely on it."""

    htmx: HtmxDetails
    user: User
    team: Team
    membership: Membership


type GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


class CurrentTeamMiddleware:
    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        attach(request)
        return self.get_response(request)


def attach(request: HttpRequest) -> None:
    request.membership = SimpleLazyObject(lambda: current_membership(request))  # type: ignore[attr-defined]
    request.team = SimpleLazyObject(lambda: _team_of(request))  # type: ignore[attr-defined]

    async def ateam() -> Team | None:
        return await aload(request)

    request.ateam = ateam  # type: ignore[attr-defined]


async def aload(request: HttpRequest) -> Team | None:
    """Person, membership and team as plain values, so that templates may use them in an async view."""
    request.user = await request.auser()
    membership = await sync_to_async(current_membership)(request) if request.user.is_authenticated else None
    request.membership = membership  # type: ignore[attr-defined]
    request.team = team = membership.team if membership else None  # type: ignore[attr-defined]
    return team


def _team_of(request: HttpRequest) -> Team | None:
    membership: Membership | None = request.membership or None  # type: ignore[attr-defined]
    return membership.team if membership else None
