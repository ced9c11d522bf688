"""The ledger for staff: rates can be added; what was charged can only be looked at."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from billing.models import Rate, UsageRecord
from billing.pricing import format_points


@admin.register(Rate)
class RateAdmin(admin.ModelAdmin[Rate]):
    """Every rate there was; a row in force is read-only."""

    list_display = ("model", "meter", "rate", "effective_from", "created_at")
    list_filter = ("meter", "model")
    search_fields = ("model",)
    date_hierarchy = "effective_from"

    def has_change_permission(self, request: HttpRequest, obj: Rate | None = None) -> bool:
        return super().has_change_permission(request, obj) and not (obj and obj.is_effective)

    def has_delete_permission(self, request: HttpRequest, obj: Rate | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not (obj and obj.is_effective)


class ReadOnlyAdmin[M: Model](admin.ModelAdmin[M]):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: M | None = None) -> bool:
        return False


@admin.register(UsageRecord)
class UsageRecordAdmin(ReadOnlyAdmin[UsageRecord]):
    """Requests by id, with what each was charged."""

    list_display = ("id", "team_id", "model", "status", "outcome", "started_at", "rated_at", "unpriced")
    list_filter = ("unpriced", "outcome")
    search_fields = ("=id",)
    ordering = ("-started_at",)
    readonly_fields = ("charged",)
    # Counting a hundred million rows for a page number helps nobody.
    show_full_result_count = False

    @admin.display(description=_("charges"))
    def charged(self, record: UsageRecord) -> str:
        return "; ".join(
            f"{charge.get_meter_display()}: {charge.units} × {format_points(charge.price_ppt)}"
            f" = {format_points(charge.amount_ppt)}"
            for charge in record.charges.all()
        )
