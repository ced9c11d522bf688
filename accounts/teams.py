"""Which team a person works in, and the personal team that everybody has."""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest

from accounts.models import Membership, Role, Team, User

SESSION_KEY = "team_id"


def current_membership(request: HttpRequest) -> Membership | None:
    """The team chosen in this session while one is still a member of it, else one's first; None for a stranger."""
    user = request.user
    if not user.is_authenticated:
        return None
    memberships = Membership.objects.filter(user=user).select_related("team").order_by("created_at", "id")
    chosen = request.session.get(SESSION_KEY)
    found = list(memberships)
    if not found:
        personal_team(user=user)
        return memberships.all().first()
    return next((membership for membership in found if membership.team_id == chosen), found[0])


def choose_team(*, request: HttpRequest, team: Team) -> None:
    request.session[SESSION_KEY] = team.pk


def personal_team(*, user: User) -> Team:
    """The person's own team, made at the first asking. `Team.personal_of` is unique, so two askers get one team."""
    with transaction.atomic():
        team, _made = Team.objects.get_or_create(
            personal_of=user,
            defaults={"name": str(user.get_short_name())[:120], "time_zone": settings.TEAM_TIME_ZONE},
        )
        Membership.objects.get_or_create(team=team, user=user, defaults={"role": Role.OWNER})
    return team


def make_personal_team(*, instance: User, created: bool, raw: bool = False, **kwargs: object) -> None:
    """Signal of a saved person: everybody has a team from the moment of signing up."""
    if created and not raw:
        personal_team(user=instance)
