"""Reports are read in one moment and no longer than somebody waits; what takes longer is said so."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from billing.snapshots import TookTooLong, one_moment


@pytest.mark.django_db(transaction=True)
def test_postgresql_is_stopped_at_the_time_limit_and_asked_for_one_processor() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no time limit of statements")
    with pytest.raises(TookTooLong), one_moment(timeout_seconds=0.05), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")
    names = ("statement_timeout", "max_parallel_workers_per_gather", "jit", "transaction_read_only")
    with one_moment(), connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")
        assert cursor.fetchone() == ("10s", "0", "off", "on")


@pytest.mark.parametrize(
    ("reader", "address"),
    [
        ("billing.views.usage_page", "/usage/"),
        ("billing.request_views.log_page", "/usage/requests/"),
        ("billing.statement_views.Statement.of", "/usage/statements/2026-11/"),
    ],
)
@pytest.mark.django_db
def test_a_page_says_that_its_question_is_too_large(
    reader: str, address: str, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*arguments: Any, **options: Any) -> None:
        raise TookTooLong

    monkeypatch.setattr(reader, give_up)
    answer = browser.get(address)
    assert answer.status_code == 503
    assert "This takes too long" in answer.text
