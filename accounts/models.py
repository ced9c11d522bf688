"""Who: people, teams, members and the keys of teams."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Self

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.auth.models import UserManager as DjangoUserManager
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class UserManager(DjangoUserManager["User"]):
    """Accounts are known by their e-mail address, lower-cased."""

    def create_user(self, email: str, password: str | None = None, **fields: object) -> User:  # type: ignore[override]
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: object) -> User:  # type: ignore[override]
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractUser):
    username = None  # type: ignore[assignment]
    first_name = None  # type: ignore[assignment]
    last_name = None  # type: ignore[assignment]
    email = models.EmailField(_("e-mail address"), unique=True)
    name = models.CharField(_("name"), max_length=120, blank=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()

    def __str__(self) -> str:
        return self.name or self.email

    def get_full_name(self) -> str:
        return self.name or self.email

    def get_short_name(self) -> str:
        return self.name or self.email.partition("@")[0]


class Role(models.TextChoices):
    OWNER = "owner", _("Owner")
    ADMIN = "admin", _("Admin")
    MEMBER = "member", _("Member")
    VIEWER = "viewer", _("Viewer")


class PointsPeriod(models.TextChoices):
    """When a limit of points begins anew: at the midnight of the team's zone, on the first of its month, or 24 hours
    after the first request that counted.
    """

    DAY = "day", _("Day")
    MONTH = "month", _("Month")
    ROLLING = "rolling", _("24 hours from the first request")


class Team(models.Model):
    """Limits: null (blank) takes the site's default, 0 means none."""

    name = models.CharField(_("name"), max_length=120)
    time_zone = models.CharField(_("time zone"), max_length=64)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")
    # Unique, so that two requests making a person's own team make one.
    personal_of = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="personal_team"
    )
    rpm_limit = models.PositiveIntegerField(_("requests a minute"), null=True, blank=True)
    points_limit_ppt = models.BigIntegerField(null=True, blank=True)
    points_period = models.CharField(_("period of the points"), max_length=8, choices=PointsPeriod, blank=True)
    # What the form of a new key proposes; null proposes a key without an end.
    default_key_days = models.PositiveSmallIntegerField(_("lifetime of new keys, in days"), null=True, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("team")
        verbose_name_plural = _("teams")

    def __str__(self) -> str:
        return self.name

    @property
    def has_points_limit(self) -> bool:
        return bool(settings.TEAM_POINTS_LIMIT if self.points_limit_ppt is None else self.points_limit_ppt)


class Membership(models.Model):
    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(_("role"), max_length=8, choices=Role, default=Role.MEMBER)
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        constraints = [models.UniqueConstraint(fields=["team", "user"], name="one_membership_per_team")]

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"


class KeyEndpoint(models.TextChoices):
    """What a key can be limited to; the gateway knows each of its paths by one of these."""

    CHAT = "chat", _("Chat completions")
    MESSAGES = "messages", _("Messages")
    OCR = "ocr", _("OCR")
    SPEECH = "speech", _("Speech")
    SYSTEMONE = "systemone", _("Decisions")
    MODELS = "models", _("List of models")
    SPACES = "spaces", _("Dedicated endpoints")


class KeyState(models.TextChoices):
    ACTIVE = "active", _("Active")
    DISABLED = "disabled", _("Disabled")
    EXPIRED = "expired", _("Expired")
    REVOKED = "revoked", _("Revoked")


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> Self:
        """Keys that authenticate a request begun now."""
        return self.filter(revoked_at=None, disabled_at=None).exclude(expires_at__lte=timezone.now())

    def with_secret(self, digest: str) -> Self:
        """The key a secret's digest belongs to: its secret of now, or the one before while that is still honoured."""
        before = models.Q(previous_digest=digest, previous_until__gt=timezone.now())
        return self.filter(models.Q(digest=digest) | before)

    def mark_used(self, latest: Mapping[int, datetime]) -> None:
        """Note each key's latest use; an older moment that arrives late changes nothing.

        In the order of the ids, so that two writers with the same keys never wait for each other.
        """
        for key_id, used_at in sorted(latest.items()):
            unseen = models.Q(last_used_at=None) | models.Q(last_used_at__lt=used_at)
            self.filter(unseen, pk=key_id).update(last_used_at=used_at)

    def listed(self) -> Self:
        """As a person reads them: those not revoked first, the newest on top, their makers loaded."""
        return self.select_related("created_by").order_by(
            models.F("revoked_at").desc(nulls_first=True), "-created_at", "-id"
        )


class ApiKey(models.Model):
    """A team's key. The secret is shown once; only its SHA-256 is kept (192 random bits need no salt).

    Rotation gives the same row another secret; `previous_digest` is the one before, good until `previous_until`.
    Scopes: an empty list allows all. Limits: null takes the site's default (of points: the team's alone), 0 means none.
    """

    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="api_keys")
    # A person may go; the team's keys and their history stay.
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="api_keys"
    )
    name = models.CharField(_("name"), max_length=120)
    digest = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=12)
    last_four = models.CharField(max_length=4)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    disabled_at = models.DateTimeField(_("disabled"), null=True, blank=True)
    previous_digest = models.CharField(max_length=64, null=True, blank=True, unique=True)
    previous_until = models.DateTimeField(null=True, blank=True)
    endpoints = models.JSONField(_("endpoints"), default=list, blank=True)
    networks = models.JSONField(_("networks"), default=list, blank=True)
    rpm_limit = models.PositiveIntegerField(_("requests a minute"), null=True, blank=True)
    concurrency_limit = models.PositiveIntegerField(_("requests in flight"), null=True, blank=True)
    points_limit_ppt = models.BigIntegerField(null=True, blank=True)
    portable = models.BooleanField(_("portable mode"), default=False)
    # Written in batches as usage arrives, never on the way of a request.
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True)
    # The last of the fields: from here on `models` is no longer Django's module in this class body.
    models = models.JSONField(_("models"), default=list, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name

    @property
    def endpoint_labels(self) -> list[str]:
        return [str(KeyEndpoint(name).label) for name in self.endpoints]

    @property
    def hint(self) -> str:
        """Enough of the key to know it by: `rc-1234…abcd`."""
        return f"{self.prefix}…{self.last_four}"

    @property
    def state(self) -> KeyState:
        if self.revoked_at:
            return KeyState.REVOKED
        if self.expires_at and self.expires_at <= timezone.now():
            return KeyState.EXPIRED
        return KeyState.DISABLED if self.disabled_at else KeyState.ACTIVE

    def good_until(self, digest: str) -> datetime | None:
        """The moment from which the secret of this digest is refused though nobody changes anything; None is never."""
        ends = [self.expires_at, self.previous_until if digest == self.previous_digest else None]
        return min((moment for moment in ends if moment), default=None)


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def open(self) -> Self:
        """Those that can be accepted now."""
        return self.pending().filter(expires_at__gt=timezone.now())

    def pending(self) -> Self:
        """Neither accepted nor revoked; those that have expired too, until somebody clears them away."""
        return self.filter(accepted_at=None, revoked_at=None)


class Invitation(models.Model):
    """A place in a team, offered to an e-mail address. The link's token is in the mail; only its SHA-256 is kept."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField(_("e-mail address"))
    role = models.CharField(_("role"), max_length=8, choices=Role, default=Role.MEMBER)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    expires_at = models.DateTimeField(_("expires"))
    accepted_at = models.DateTimeField(_("accepted"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")
        ordering = ["-created_at", "-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "email"],
                condition=models.Q(accepted_at=None, revoked_at=None),
                name="one_pending_invitation_an_address",
            )
        ]

    def __str__(self) -> str:
        return self.email

    @property
    def has_expired(self) -> bool:
        return self.expires_at <= timezone.now()


class AppendOnly(TypeError):
    """Somebody tried to change or remove what is only ever added to."""


class AuditQuerySet(models.QuerySet["AuditEntry"]):
    """Every way of Django's own to change rows ends at one of these."""

    def update(self, **fields: Any) -> int:
        raise AppendOnly("audit entries are not changed")

    def bulk_create(self, *args: Any, **options: Any) -> list[AuditEntry]:
        raise AppendOnly("audit entries are written one by one, with what they tell of")

    def _update(self, values: Any) -> int:
        raise AppendOnly("audit entries are not changed")

    def _raw_delete(self, using: str | None) -> int:
        raise AppendOnly("audit entries are not removed")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnly("audit entries are not removed")


class AuditEntry(models.Model):
    """Who did what to which object, from where, when. Only added to; `accounts.audit.record` writes it.

    People and objects are numbers and names as they were: the entry outlives both. `details` holds what
    changed, never a secret. Without a team it is about a person's own account.
    """

    team = models.ForeignKey(Team, null=True, on_delete=models.PROTECT, related_name="audit_entries")
    at = models.DateTimeField(default=timezone.now)
    actor_id = models.BigIntegerField(null=True)
    actor_name = models.CharField(max_length=254)
    action = models.CharField(max_length=40)
    object_type = models.CharField(max_length=20)
    object_id = models.BigIntegerField(null=True)
    object_name = models.CharField(max_length=254)
    details = models.JSONField(default=dict)
    address = models.CharField(max_length=64, blank=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit log")
        ordering = ["-at", "-id"]
        base_manager_name = "objects"
        indexes = [
            models.Index(fields=["team", "-at", "-id"], name="team_audit_log"),
            models.Index(fields=["actor_id", "-at"], name="actor_audit_log"),
        ]

    def __str__(self) -> str:
        return f"{self.actor_name} {self.action} {self.object_name}"

    def save(self, **options: Any) -> None:
        if not self._state.adding:
            raise AppendOnly("audit entries are not changed")
        # Else one that is made with the number of another would take its place.
        super().save(**options | {"force_insert": True})

    def delete(self, using: Any = None, keep_parents: bool = False) -> tuple[int, dict[str, int]]:
        raise AppendOnly("audit entries are not removed")
