"""Rows from one JSON parameter, the same on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction

from billing.bulk import insert_json
from billing.models import Charge, UsageRecord

pytestmark = pytest.mark.django_db
REQUEST_ID = "00000000000040008000000000000001"


def record_row(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": REQUEST_ID,
        "team_id": 7,
        "model": "DeepSeek-V4-Flash",
        "endpoint": "chat",
        "source": "api",
        "status": 200,
        "outcome": "ok",
        "stream": True,
        "prompt_tokens": 1000,
        "usage": {"prompt_tokens": 1000, "note": "ü"},
        "started_at": "2026-11-01 10:00:00.000000",
        "finished_at": "2026-11-01 10:00:01.250000",
    }
    return row | changes


def insert_records(*rows: dict[str, Any]) -> int:
    return insert_json(UsageRecord, json.dumps(rows), on_conflict="DO NOTHING")


def test_every_kind_of_field_arrives_as_the_orm_reads_it() -> None:
    assert insert_records(record_row()) == 1
    record = UsageRecord.objects.get()
    assert record.id == UUID(REQUEST_ID)
    assert record.stream is True
    assert record.usage == {"prompt_tokens": 1000, "note": "ü"}
    assert record.started_at == datetime(2026, 11, 1, 10, tzinfo=UTC)
    assert record.finished_at == datetime(2026, 11, 1, 10, 0, 1, 250_000, tzinfo=UTC)


def test_absent_and_null_keys_take_the_default_or_null() -> None:
    insert_records(record_row(completion_tokens=None, upstream=None))
    record = UsageRecord.objects.get()
    assert (record.completion_tokens, record.cached_tokens, record.key_id) == (0, 0, 0)
    assert (record.upstream, record.finish_reason) == ("", "")
    assert record.estimated is False
    assert record.unpriced is False
    assert record.first_byte_at is None
    assert record.rated_at is None


def test_a_record_without_a_model_is_refused() -> None:
    row = record_row()
    del row["model"]
    with pytest.raises(IntegrityError), transaction.atomic():
        insert_records(row)


def test_a_row_that_is_there_already_is_left_as_it_is() -> None:
    insert_records(record_row())
    other = record_row(id="00000000000040008000000000000002")
    assert insert_records(record_row(prompt_tokens=5), other) == 1
    assert UsageRecord.objects.get(id=REQUEST_ID).prompt_tokens == 1000


def test_whole_seconds_compare_equal_to_what_the_orm_asks_for() -> None:
    insert_records(record_row())
    assert UsageRecord.objects.filter(started_at=datetime(2026, 11, 1, 10, tzinfo=UTC)).exists()


def test_text_too_long_for_its_column_is_cut() -> None:
    insert_records(record_row(upstream_id="é" * 500))
    assert UsageRecord.objects.get().upstream_id == "é" * 200


def test_nul_characters_are_replaced_and_escaped_backslashes_kept() -> None:
    insert_records(record_row(upstream_id="a\0b", usage={"x": "\\u0000", "y": "\\\0"}))
    record = UsageRecord.objects.get()
    assert record.upstream_id == "a\ufffdb"
    assert record.usage == {"x": "\\u0000", "y": "\\\ufffd"}


def test_only_the_named_columns_are_written() -> None:
    charge = {"record_id": REQUEST_ID, "meter": "input", "units": 2**62, "price_ppt": 1, "amount_ppt": 2**62}
    columns = ("record_id", "meter", "units", "price_ppt", "amount_ppt", "created_at")
    insert_json(Charge, json.dumps([charge | {"created_at": "2026-11-01 10:00:00", "x": 1}]), columns=columns)
    assert Charge.objects.get().units == 2**62
    with pytest.raises(ValueError, match="no column"):
        insert_json(Charge, "[]", columns=("nonsense",))


def test_an_empty_array_writes_nothing() -> None:
    assert insert_json(UsageRecord, b"[]") == 0
