"""Django admin of people, teams and keys, behind the site's own sign-in (its throttle and second factor)."""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.models import ApiKey, Membership, Team, User

admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]


class MembershipInline(admin.TabularInline[Membership, Team]):
    model = Membership
    extra = 0
    autocomplete_fields = ("user",)


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


@admin.register(Team)
class TeamAdmin(admin.ModelAdmin[Team]):
    list_display = ("name", "time_zone", "personal_of", "created_at")
    search_fields = ("name", "members__email")
    list_select_related = ("personal_of",)
    readonly_fields = ("created_at", "personal_of")
    inlines = (MembershipInline,)


@admin.register(Membership)
class MembershipAdmin(admin.ModelAdmin[Membership]):
    list_display = ("user", "team", "role", "created_at")
    list_filter = ("role",)
    search_fields = ("user__email", "team__name")
    list_select_related = ("user", "team")
    autocomplete_fields = ("user", "team")
    readonly_fields = ("created_at",)


@admin.register(ApiKey)
class ApiKeyAdmin(admin.ModelAdmin[ApiKey]):
    """To look at. Keys are made and revoked where every process hears of it, and are never deleted."""

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

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: ApiKey | None = None) -> bool:
        return False
