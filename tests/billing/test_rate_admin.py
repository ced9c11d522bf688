"""Rates entered by staff: validated, only added, and known by who entered them."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry, User
from billing.models import Rate
from billing.rates import load_rates
from tests.billing.factories import make_rate

pytestmark = pytest.mark.django_db
ADD = "/admin/billing/rate/add/"


@pytest.fixture
def staff() -> Client:
    load_rates()
    client = Client()
    client.force_login(User.objects.create_superuser("staff@example.com", "x", name="Kim"))
    return client


def enter(staff: Client, *, hours: float = 1, **changes: Any) -> str:
    at = timezone.now() + timedelta(hours=hours)
    form = {
        "model": "d3",
        "meter": "input",
        "rate": "0.05",
        "effective_from_0": f"{at:%Y-%m-%d}",
        "effective_from_1": f"{at:%H:%M:%S}",
    }
    return str(staff.post(ADD, form | changes).content.decode())


def test_a_rate_is_entered_and_it_is_known_by_whom(staff: Client) -> None:
    assert enter(staff) == ""
    rate = Rate.objects.get(model="d3", rate=Decimal("0.05"))
    assert rate.created_by == "Kim"
    entry = AuditEntry.objects.get(action="rate.entered")
    assert (entry.actor_name, entry.object_id, entry.details["rate"]) == ("Kim", rate.pk, "0.05")


@pytest.mark.parametrize("rate", ["-1", "NaN", "Infinity", "0.0000001", "1e-9", "90001", "", "free"])
def test_what_is_no_exact_price_is_refused(staff: Client, rate: str) -> None:
    assert "errorlist" in enter(staff, rate=rate)
    assert not AuditEntry.objects.exists()


def test_the_past_is_changed_only_on_purpose(staff: Client) -> None:
    assert "begins now or later" in enter(staff, hours=-1)
    assert enter(staff, hours=-1, dated_back="on") == ""


def test_a_rate_in_force_cannot_be_changed_or_removed_a_future_one_can_be_withdrawn(staff: Client) -> None:
    current = Rate.objects.get(model="d3", meter="input")
    assert staff.post(f"/admin/billing/rate/{current.pk}/change/", {"rate": "9"}).status_code == 403
    assert staff.post(f"/admin/billing/rate/{current.pk}/delete/", {"post": "yes"}).status_code == 403
    future = make_rate(model="d3", meter="input", rate="1", effective_from=timezone.now() + timedelta(days=1))
    assert staff.post(f"/admin/billing/rate/{future.pk}/change/", {"rate": "9"}).status_code == 403
    assert staff.post(f"/admin/billing/rate/{future.pk}/delete/", {"post": "yes"}).status_code == 302
    assert AuditEntry.objects.get().action == "rate.withdrawn"


@pytest.mark.parametrize("page", ["rate", "setaside", "repricing", "reconciliation", "usagerecord"])
def test_staff_see_the_ledger(staff: Client, page: str) -> None:
    assert staff.get(f"/admin/billing/{page}/").status_code == 200
    rate = Rate.objects.get(model="d3", meter="input")
    assert "0.035" in staff.get(f"/admin/billing/rate/{rate.pk}/change/").content.decode()
