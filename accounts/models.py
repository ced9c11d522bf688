"""Who: people, teams, members and the keys of teams."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Self

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


class Team(models.Model):
    name = models.CharField(_("name"), max_length=120)
    time_zone = models.CharField(_("time zone"), max_length=64)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")
    # Unique, so that two requests making a person's own team make one.
    personal_of = models.OneToOneField(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="personal_team"
    )
    created_at = models.DateTimeField(_("created"), default=timezone.now)

    class Meta:
        verbose_name = _("team")
        verbose_name_plural = _("teams")

    def __str__(self) -> str:
        return self.name


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


class KeyState(models.TextChoices):
    ACTIVE = "active", _("Active")
    EXPIRED = "expired", _("Expired")
    REVOKED = "revoked", _("Revoked")


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self) -> Self:
        """Keys that authenticate a request begun now."""
        return self.filter(revoked_at=None).exclude(expires_at__lte=timezone.now())

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
    """A team's key. The secret is shown once; only its SHA-256 is kept (192 random bits need no salt)."""

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
    # Written in batches as usage arrives, never on the way of a request.
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return self.name

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
        return KeyState.ACTIVE
