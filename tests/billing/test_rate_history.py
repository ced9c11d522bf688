"""A model's page tells every change of its rates, past and to come."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.template import engines
from django.utils import timezone

from billing.rates import load_rates
from tests.billing.factories import make_rate

pytestmark = pytest.mark.django_db


def rows(model: str) -> list[list[str]]:
    template = engines["django"].from_string("{% load ledger %}{% rate_history model %}")
    html = template.render({"model": model})
    return [
        [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    ]


def test_every_change_is_told_with_all_rates_from_then_on() -> None:
    load_rates()
    now = timezone.now()
    hour, day = now - timedelta(hours=1), now + timedelta(days=1)
    make_rate(model="d3", meter="input", rate="0.05", effective_from=hour)
    make_rate(model="d3", meter="cache_read", rate="0.000001", effective_from=day)
    assert rows("d3") == [
        ["From (UTC)", "Input tokens", "Cache-read tokens", "Output tokens"],
        [f"{day:%Y-%m-%d %H:%M} to come", "0.05", "0.000001", "0"],
        [f"{hour:%Y-%m-%d %H:%M} in force", "0.05", "–", "0"],
        ["2026-10-19 00:00", "0.035", "–", "0"],
    ]


def test_rates_that_never_changed_have_no_history() -> None:
    load_rates()
    assert rows("d3") == []
    assert rows("unheard-of") == []
