"""One call, one record: what is in it, and that it is made once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from billing.models import Outcome, UsageRecord
from gateway.call import MAX_USAGE_BYTES, Call, new_request_id, timestamp
from gateway.errors import UpstreamSaturated
from tests.gateway.ledger import Ledger, new_call


def test_a_finished_record_has_every_column_of_the_table() -> None:
    ledger = Ledger()
    call = new_call(ledger)
    call.finish(Outcome.OK)
    filled_later = {"rated_at", "unpriced"}
    assert set(ledger.record) == {field.column for field in UsageRecord._meta.concrete_fields} - filled_later


def test_the_record_of_a_call() -> None:
    ledger = Ledger()
    call = new_call(ledger, started_at=1_790_000_000.25)
    call.accept()
    call.upstream, call.upstream_id, call.status, call.finish_reason = "gpu-1", "chatcmpl-1", 200, "stop"
    call.first_byte_at = 1_790_000_000.5
    call.bytes_out = 321
    call.usage = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}}
    call.finish(Outcome.OK)
    record = dict(ledger.record)
    finished_at = datetime.fromisoformat(record.pop("finished_at") + "+00:00")
    assert abs(finished_at.timestamp() - time.time()) < 60
    assert record == {
        "id": call.request_id.replace("-", ""), "team_id": 3, "key_id": 5, "member_id": 7, "source": "api",
        "model": "DeepSeek-V4-Flash", "endpoint": "chat", "stream": True, "upstream": "gpu-1",
        "upstream_id": "chatcmpl-1", "status": 200, "outcome": "ok", "error_code": "", "finish_reason": "stop",
        "prompt_tokens": 100, "cached_tokens": 40, "completion_tokens": 20, "reasoning_tokens": 0, "image_tokens": 0,
        "pages": 0, "characters": 0, "usage": call.usage, "estimated": False, "bytes_out": 321,
        "started_at": "2026-09-21 14:13:20.250000",
        "first_byte_at": "2026-09-21 14:13:20.500000",
    }  # fmt: skip


def test_the_start_line_says_what_is_known_if_the_process_dies_now() -> None:
    ledger = Ledger()
    new_call(ledger, started_at=1_790_000_000.0).accept()
    (record,) = ledger.started
    assert (record["outcome"], record["status"]) == ("interrupted", 0)
    assert record["started_at"] == record["finished_at"] == "2026-09-21 14:13:20.000000"
    assert ledger.finished == []


def test_only_the_first_end_counts() -> None:
    ledger = Ledger()
    told: list[Call] = []
    call = new_call(ledger, on_finish=told.append)
    for outcome in (Outcome.CLIENT_GONE, Outcome.OK, Outcome.ERROR):
        call.finish(outcome)
    assert ledger.record["outcome"] == "client_gone"
    assert told == [call]


def test_without_a_journal_nothing_is_served() -> None:
    ledger, told = Ledger(is_full=True), list[tuple[int, bool]]()
    call = new_call(ledger, on_finish=lambda call: told.append((call.status, call.finished)))
    call.accept(alone=False)
    with pytest.raises(UpstreamSaturated) as caught:
        call.written()
    assert caught.value.status == 503
    assert (b"retry-after", b"5") in caught.value.headers
    # What was set aside for it is free again, and it leaves no record.
    assert told == [(503, True)]
    call.finish(Outcome.ERROR)
    assert ledger.finished == []


@pytest.mark.parametrize(
    ("fields", "tokens", "estimated"),
    [
        # Usage wins, even where it says that nothing came out.
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 0}, "output_chunks": 5}, (9, 0), False),
        ({"usage": None, "output_chunks": 5, "prompt_bytes": 400}, (100, 5), True),
        ({"usage": {}, "output_chunks": 5, "prompt_bytes": 400}, (100, 5), True),
        ({"usage": "a lot", "output_chunks": 5, "prompt_bytes": 400}, (100, 5), True),
        ({"usage": {"prompt_tokens": None}, "output_chunks": 5, "prompt_bytes": 400}, (100, 5), True),
        ({"usage": None, "output_chunks": 0, "prompt_bytes": 400}, (0, 0), False),
        ({"usage": None, "output_chunks": 5, "prompt_bytes": 400, "status": 500}, (0, 0), False),
    ],
)
def test_output_without_usage_is_estimated_and_marked(
    fields: dict[str, Any], tokens: tuple[int, int], estimated: bool
) -> None:
    ledger = Ledger()
    call = new_call(ledger)
    for name, value in ({"status": 200} | fields).items():
        setattr(call, name, value)
    call.finish(Outcome.OK)
    record = ledger.record
    assert ((record["prompt_tokens"], record["completion_tokens"]), record["estimated"]) == (tokens, estimated)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "extra", [{"x": "y" * MAX_USAGE_BYTES}, {"x": nested(253)}, {"x": nested(254)}, {"x": nested(900)}]
)
def test_an_absurd_usage_object_is_not_kept_but_counted(extra: dict[str, Any]) -> None:
    ledger = Ledger()
    call = new_call(ledger)
    call.usage = {"completion_tokens": 7} | extra
    call.status = 200
    call.finish(Outcome.OK)
    assert (ledger.record["completion_tokens"], ledger.record["usage"]) == (7, None)


def test_request_ids_are_uuids_in_the_order_of_time() -> None:
    before = time.time_ns() // 1_000_000
    ids = [uuid.UUID(new_request_id()) for _ in range(500)]
    after = time.time_ns() // 1_000_000
    assert {(made.version, made.variant) for made in ids} == {(7, uuid.RFC_4122)}
    assert len(set(ids)) == 500
    moments = [made.int >> 80 for made in ids]
    assert moments == sorted(moments)
    assert before <= moments[0] <= moments[-1] <= after


def test_a_forked_process_makes_ids_of_its_own() -> None:
    """Ends of ids are made in advance; what the parent has left must not be used twice."""
    code = (
        "import os, django; django.setup()\n"
        "from gateway.call import new_request_id\n"
        "new_request_id()\n"
        "child = os.fork()\n"
        # One after the other: where standard output is unbuffered, an id and its line's end are written apart.
        "child and os.waitpid(child, 0)\n"
        "print(new_request_id(), flush=True)\n"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.PIPE, text=True)
    in_one, in_the_other = run.stdout.split()
    assert in_one[14:] != in_the_other[14:]


def test_times_are_written_as_the_database_takes_them() -> None:
    for moment in (1_790_000_000.0, 1_790_000_000.999999, 1_790_000_001.5, 1_790_000_000.25, 0.0):
        assert datetime.strptime(timestamp(moment), "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=UTC).timestamp() == moment
