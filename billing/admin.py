"""The ledger for staff: rates can be added; what was charged can only be looked at."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, Sum
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from accounts.audit import Actor
from accounts.models import AuditEntry
from billing.models import Meter, Rate, Reconciliation, Repricing, SetAside, UsageRecord
from billing.pricing import format_points
from billing.repricing import parts_of


class RateForm(forms.ModelForm[Rate]):
    """A new rate. One that begins in the past has to be meant."""

    dated_back = forms.BooleanField(
        label=_("date back"),
        required=False,
        help_text=_("An earlier rate was wrong. Requests charged by it keep their charges until `reprice` is run."),
    )

    def clean(self) -> dict[str, Any] | None:
        self.instance.may_be_dated_back = bool(self.cleaned_data.get("dated_back"))
        return super().clean()


@admin.register(Rate)
class RateAdmin(admin.ModelAdmin[Rate]):
    """Every rate there was. One is added, never changed; one that is not in force yet can be withdrawn."""

    form = RateForm
    fields = ("model", "meter", "rate", "effective_from", "dated_back")
    list_display = ("model", "meter", "rate", "effective_from", "created_at", "created_by")
    list_filter = ("meter", "model")
    search_fields = ("model",)
    date_hierarchy = "effective_from"
    actions = None

    def has_change_permission(self, request: HttpRequest, obj: Rate | None = None) -> bool:
        return obj is None and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Rate | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not (obj and obj.is_effective)

    def get_fields(self, request: HttpRequest, obj: Rate | None = None) -> Any:
        return self.list_display if obj else self.fields

    def save_model(self, request: HttpRequest, obj: Rate, form: Any, change: bool) -> None:
        obj.created_by = Actor.of(request).name
        super().save_model(request, obj, form, change)
        _note(request, "rate.entered", obj)

    def delete_model(self, request: HttpRequest, obj: Rate) -> None:
        _note(request, "rate.withdrawn", obj)
        super().delete_model(request, obj)


def _note(request: HttpRequest, action: str, rate: Rate) -> None:
    """Into the audit log, in the transaction of the change itself."""
    actor = Actor.of(request)
    AuditEntry.objects.create(
        actor_id=actor.id,
        actor_name=actor.name[:254],
        action=action,
        object_type="rate",
        object_id=rate.pk,
        object_name=str(rate)[:254],
        details={"effective_from": rate.effective_from.isoformat(), "rate": str(rate.rate)},
        address=actor.address,
    )


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
            f"{Meter(part.meter).label}: {part.units} × {format_points(part.price_ppt)}"
            f" = {format_points(part.amount_ppt)}"
            for part in parts_of([record.id]).get(record.id, {}).values()
        )


@admin.register(SetAside)
class SetAsideAdmin(ReadOnlyAdmin[SetAside]):
    """Requests that could not be rated: charged nothing until `reprice` can price them."""

    list_display = ("record_id", "reason", "created_at")
    search_fields = ("=record_id", "reason")


@admin.register(Repricing)
class RepricingAdmin(ReadOnlyAdmin[Repricing]):
    """Who had which requests charged anew, and what it came to."""

    list_display = ("start_at", "end_at", "model", "reason", "created_by", "created_at", "points")
    ordering = ("-created_at",)

    @admin.display(description=_("difference in points"))
    def points(self, repricing: Repricing) -> str:
        return format_points(repricing.corrections.aggregate(total=Sum("amount_delta_ppt", default=0))["total"])


@admin.register(Reconciliation)
class ReconciliationAdmin(ReadOnlyAdmin[Reconciliation]):
    """Whether the ledger added up, night by night."""

    list_display = ("created_at", "differences", "seconds")
