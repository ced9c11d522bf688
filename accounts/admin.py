"""Django admin of people, teams and keys, behind the site's own sign-in (its throttle and second factor).

What must be recorded and heard by every process is changed here through the same verbs as on the pages, or not at all.
"""

from __future__ import annotations

from typing import Any

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db import models
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.audit import Actor
from accounts.models import ApiKey, AuditEntry, Invitation, Membership, Team, User
from accounts.teams import TeamSettings, change_team

admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]


class ReadOnly:
    """Mixin: to look at."""

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class MembershipInline(ReadOnly, admin.TabularInline[Membership, Team]):
    model = Membership
    extra = 0


@admin.register(User)
class UserAdmin(DjangoUserAdmin):  # type: ignore[type-arg]
    list_display = ("email", "name", "is_active", "is_staff", "date_joined", "last_login")
    search_fields = ("email", "name")
    ordering = ("email",)
    readonly_fields = ("date_joined", "last_login")
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        (_("Permissions"), {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        (_("Important dates"), {"fields": ("last_login", "date_joined")}),
    )
    add_fieldsets = ((None, {"classes": ("wide",), "fields": ("email", "usable_password", "password1", "password2")}),)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        """People end their accounts themselves, which settles their keys; staff makes an account inactive."""
        return False


@admin.register(Team)
class TeamAdmin(admin.ModelAdmin[Team]):
    list_display = ("name", "time_zone", "personal_of", "rpm_limit", "points_limit_ppt", "points_period", "created_at")
    search_fields = ("name", "members__email")
    list_select_related = ("personal_of",)
    readonly_fields = ("created_at", "personal_of")
    inlines = (MembershipInline,)

    def save_model(self, request: HttpRequest, obj: Team, form: ModelForm[Team], change: bool) -> None:
        if not change:
            return super().save_model(request, obj, form, change)
        return change_team(team=Team.objects.get(pk=obj.pk), to=TeamSettings.of(obj), actor=Actor.of(request))

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


@admin.register(Membership)
class MembershipAdmin(ReadOnly, admin.ModelAdmin[Membership]):
    list_display = ("user", "team", "role", "created_at")
    list_filter = ("role",)
    search_fields = ("user__email", "team__name")
    list_select_related = ("user", "team")


@admin.register(Invitation)
class InvitationAdmin(ReadOnly, admin.ModelAdmin[Invitation]):
    list_display = ("email", "team", "role", "invited_by", "created_at", "expires_at", "accepted_at", "revoked_at")
    search_fields = ("email", "team__name")
    list_select_related = ("team", "invited_by")
    fields = list_display


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnly, admin.ModelAdmin[ApiKey]):
    list_display = (
        "name",
        "hint",
        "team",
        "created_by",
        "created_at",
        "expires_at",
        "disabled_at",
        "revoked_at",
        "last_used_at",
    )
    search_fields = ("name", "team__name", "created_by__email", "last_four")
    list_select_related = ("team", "created_by")
    fields = list_display


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly, admin.ModelAdmin[AuditEntry]):
    list_display = ("at", "team", "actor_name", "action", "object_name", "address")
    list_filter = ("action",)
    search_fields = ("actor_name", "object_name", "team__name")
    list_select_related = ("team",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).order_by("-at", "-id")
