"""Teams: which one a person works in, the personal one that everybody has, making and changing one."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from accounts import key_epoch
from accounts.audit import Action, Actor, record
from accounts.models import AuditEntry, Membership, Role, Team, User

SESSION_KEY = "team_id"


class TooManyTeams(Exception):
    """The person has made as many as the site allows; none was made."""


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
        found = list(memberships.all())
    # The switcher of the same page lists them without asking again.
    request.memberships = found  # type: ignore[attr-defined]
    return next((membership for membership in found if membership.team_id == chosen), found[0])


@dataclass(frozen=True, slots=True)
class TeamSettings:
    """What can be decided about a team; the fields are Team's."""

    name: str
    time_zone: str
    default_key_days: int | None
    rpm_limit: int | None
    points_limit_ppt: int | None
    points_period: str

    @classmethod
    def of(cls, team: Team) -> TeamSettings:
        return cls(**{name: getattr(team, name) for name in cls.__dataclass_fields__})


def create_team(*, name: str, owner: User, actor: Actor) -> Team:
    """Raises TooManyTeams: every team has the site's points, and whoever makes enough of them has no limit."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=owner.pk)
        # Of all that he made: one that was given away is one still.
        made = AuditEntry.objects.filter(actor_id=owner.pk, action=Action.TEAM_CREATED)
        if 0 < settings.TEAMS_PER_PERSON <= made.count() and not owner.is_staff:
            raise TooManyTeams
        team = Team.objects.create(name=name, time_zone=settings.TEAM_TIME_ZONE)
        Membership.objects.create(team=team, user=owner, role=Role.OWNER)
        record(actor=actor, action=Action.TEAM_CREATED, team=team, object=team)
    return team


def change_team(*, team: Team, to: TeamSettings, actor: Actor) -> None:
    """Binds the next request in every process."""
    with transaction.atomic():
        before = TeamSettings.of(Team.objects.select_for_update().get(pk=team.pk))
        old, new = asdict(before), asdict(to)
        details = {name: [old[name], new[name]] for name in new if old[name] != new[name]}
        if not details:
            return
        Team.objects.filter(pk=team.pk).update(**new)
        team.refresh_from_db()
        record(actor=actor, action=Action.TEAM_CHANGED, team=team, object=team, details=details)
    key_epoch.bump()


def changed_lately(team: Team, setting: str) -> bool:
    """Whether this setting was changed within the last 24 hours."""
    since = timezone.now() - timedelta(days=1)
    changes = AuditEntry.objects.filter(team=team, action=Action.TEAM_CHANGED, at__gt=since)
    return changes.filter(details__has_key=setting).exists()


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
