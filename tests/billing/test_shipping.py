"""From journal to table: each record exactly once, whatever fails in between."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import pytest
from django.db import DatabaseError, connection
from django.test.utils import CaptureQueriesContext

from billing.journal import Journal, adopting
from billing.models import UsageRecord
from billing.shipping import Shipper, adopt, ship
from tests.services import wait_until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.django_db(transaction=True)


def record(request_id: UUID, **fields: Any) -> bytes:
    columns = {
        "id": request_id.hex, "team_id": 1, "key_id": 2, "member_id": 3, "source": "api", "model": "m",
        "endpoint": "chat", "status": 200, "outcome": "ok", "started_at": "2026-11-01 10:07:30.250000",
        "finished_at": "2026-11-01 10:07:31.000000",
    }  # fmt: skip
    return orjson.dumps(columns | fields)


def interrupted(request_id: UUID) -> bytes:
    return record(request_id, status=0, outcome="interrupted")


def stored() -> dict[UUID, str]:
    return dict(UsageRecord.objects.values_list("id", "outcome"))


def leave_behind(directory: Path, *notes: tuple[str, UUID], **options: Any) -> None:
    """A journal as a killed process leaves it: notes are ("start" | "finish", request id)."""
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom billing.journal import Journal\n"
        f"journal = Journal(Path(sys.argv[1]), **{options!r})\n"
    )
    for kind, request_id in notes:
        json = interrupted(request_id) if kind == "start" else record(request_id)
        code += f"journal.{kind}({request_id.hex!r}, {json!r})\n"
    code += "os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", code, str(directory)], cwd=ROOT, check=False)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal")
    yield made
    made.close()


@pytest.fixture
def run_shipper(journal: Journal) -> Iterator[Callable[[], Shipper]]:
    """Starts the shipper of `journal`; it is stopped before the database is looked away from it."""
    started: list[Shipper] = []

    def run() -> Shipper:
        started.append(Shipper(journal))
        started[-1].start()
        return started[-1]

    yield run
    for shipper in started:
        shipper.stop(timeout_seconds=20)


# -- batches -----------------------------------------------------------------------------------------


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    first, second = uuid4(), uuid4()
    ship([record(first)], rejected_file=tmp_path / "rejected.jsonl")
    again = [record(request_id, outcome="error") for request_id in (first, second, second)]
    ship(again, rejected_file=tmp_path / "rejected.jsonl")
    assert stored() == {first: "ok", second: "error"}


def test_a_record_arrives_with_every_column(tmp_path: Path) -> None:
    request_id = uuid4()
    usage = {"prompt_tokens": 10, "note": "nul \x00 and 🙂"}
    fields = {
        "upstream": "gpu-1", "upstream_id": "u" * 300, "error_code": "", "stream": True, "finish_reason": "stop",
        "prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 7, "reasoning_tokens": 2, "image_tokens": 1,
        "usage": usage, "estimated": True, "bytes_out": 2**40, "first_byte_at": "2026-11-01 10:07:30.750000",
    }  # fmt: skip
    ship([record(request_id, **fields)], rejected_file=tmp_path / "no")
    row: dict[str, Any] = UsageRecord.objects.values().get()  # type: ignore[assignment]
    assert row["upstream_id"] == "u" * 200
    assert row["usage"]["prompt_tokens"] == 10
    for name in ("upstream", "stream", "finish_reason", "prompt_tokens", "cached_tokens", "completion_tokens",
                 "reasoning_tokens", "image_tokens", "estimated", "bytes_out"):  # fmt: skip
        assert row[name] == fields[name]
    times = [row[name].isoformat() for name in ("started_at", "first_byte_at", "finished_at")]
    assert times == [
        "2026-11-01T10:07:30.250000+00:00", "2026-11-01T10:07:30.750000+00:00", "2026-11-01T10:07:31+00:00",
    ]  # fmt: skip
    assert (row["rated_at"], row["pages"], row["unpriced"]) == (None, 0, False)


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_row_the_database_refuses_is_set_aside_and_the_rest_stored(tmp_path: Path, place: int) -> None:
    good = [uuid4() for _ in range(6)]
    poison = uuid4()
    records = [record(request_id) for request_id in good]
    records.insert(place, record(poison, team_id=None))
    rejected_file = tmp_path / "rejected.jsonl"
    ship(records, rejected_file=rejected_file)
    assert set(stored()) == set(good)
    assert rejected_file.read_bytes() == record(poison, team_id=None) + b"\n"


def test_a_database_that_is_away_gets_nothing_set_aside(tmp_path: Path) -> None:
    request_id = uuid4()
    with without_table(), pytest.raises(DatabaseError):
        ship([record(request_id)], rejected_file=tmp_path / "rejected.jsonl")
    assert list(tmp_path.iterdir()) == []


class without_table:  # noqa: N801 -- reads as a phrase
    """The table is gone for a while, as if the database were."""

    def __enter__(self) -> None:
        self._rename("billing_usagerecord", "away")

    def __exit__(self, *reason: object) -> None:
        self._rename("away", "billing_usagerecord")

    def _rename(self, old: str, new: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")


# -- the shipper -------------------------------------------------------------------------------------


def test_what_is_noted_is_stored_soon(journal: Journal, run_shipper: Callable[[], Shipper]) -> None:
    run_shipper()
    ids = [uuid4() for _ in range(20)]
    for request_id in ids:
        journal.start(request_id.hex, interrupted(request_id))
        journal.finish(request_id.hex, record(request_id))
    wait_until(lambda: stored() == dict.fromkeys(ids, "ok"), what="twenty records stored")
    assert journal.backlog_bytes == 0


@pytest.mark.parametrize(("count", "pieces"), [(0, 0), (16, 1), (17, 2), (96, 6), (600, 6)])
def test_a_database_that_works_in_a_process_of_its_own_gets_pieces(journal: Journal, count: int, pieces: int) -> None:
    ids = [uuid4() for _ in range(count)]
    for request_id in ids:
        journal.finish(request_id.hex, record(request_id))
    shipper = Shipper(journal)
    with CaptureQueriesContext(connection) as done:
        shipper._ship_segments()
    inserts = [query for query in done.captured_queries if query["sql"].startswith("INSERT")]
    assert len(inserts) == (pieces if connection.vendor == "postgresql" else min(pieces, 1))
    assert stored() == dict.fromkeys(ids, "ok")
    assert journal.backlog_bytes == 0


def test_the_journal_is_forced_to_disk_again_and_again(
    journal: Journal, run_shipper: Callable[[], Shipper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `JOURNAL_FSYNC=second`, which is what the power's failure can cost at most."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    (segment,) = journal.segments
    run_shipper()
    for times in (1, 2):
        request_id = uuid4()
        journal.finish(request_id.hex, record(request_id))
        wait_until(lambda: segment.synced == segment.size, what="the journal forced to disk")
        assert synced == times * [segment.descriptor]


def test_stopping_ships_what_is_left(journal: Journal) -> None:
    shipper = Shipper(journal)
    shipper.start()
    request_id = uuid4()
    journal.finish(request_id.hex, record(request_id))
    shipper.stop(timeout_seconds=20)
    assert stored() == {request_id: "ok"}


def test_while_the_database_is_away_the_journal_grows_and_later_all_of_it_is_stored(
    tmp_path: Path,
) -> None:
    """Over several segments, each of which goes when its records are stored."""
    journal = Journal(tmp_path / "journal", segment_bytes=1000)
    shipper = Shipper(journal)
    ids = [uuid4() for _ in range(20)]
    with without_table():
        shipper.start()
        for request_id in ids:
            journal.start(request_id.hex, interrupted(request_id))
            journal.finish(request_id.hex, record(request_id))
        wait_until(lambda: shipper.last_error, what="the shipper noticing")
        assert "billing_usagerecord" in shipper.last_error
        assert len(journal.segments) > 3
    wait_until(lambda: stored() == dict.fromkeys(ids, "ok"), what="all records stored")
    wait_until(lambda: len(journal.segments) == 1 and not shipper.last_error, what="the segments gone")
    shipper.stop(timeout_seconds=20)
    journal.close()
    assert list((tmp_path / "journal").glob("*.journal")) == []


def test_a_full_disk_does_not_keep_the_journal_from_being_shipped(
    journal: Journal, run_shipper: Callable[[], Shipper], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shipping is what makes room; the record that found none follows when there is."""
    before, after = uuid4(), uuid4()
    journal.finish(before.hex, record(before))
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if descriptor == journal.segments[-1].descriptor:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    journal.finish(after.hex, record(after))
    shipper = run_shipper()
    wait_until(lambda: stored() == {before: "ok"}, what="the earlier record stored")
    wait_until(lambda: "JournalFull" in shipper.last_error, what="the shipper noticing")
    monkeypatch.undo()
    wait_until(lambda: stored() == {before: "ok", after: "ok"}, what="the later record stored")


# -- adoption ----------------------------------------------------------------------------------------


def test_what_a_killed_process_noted_is_stored_and_what_it_cut_is_told(tmp_path: Path) -> None:
    done, cut = uuid4(), uuid4()
    leave_behind(tmp_path, ("start", done), ("start", cut), ("finish", done))
    assert adopt(tmp_path) == 2
    assert stored() == {done: "ok", cut: "interrupted"}
    assert list(tmp_path.glob("*.journal")) == []
    assert adopt(tmp_path) == 0


def test_a_call_that_ended_in_a_later_segment_is_not_taken_for_cut(tmp_path: Path) -> None:
    long, short, cut = uuid4(), uuid4(), uuid4()
    notes = [("start", long), ("start", cut), ("start", short), ("finish", short), ("finish", long)]
    leave_behind(tmp_path, *notes, segment_bytes=300)
    assert len(list(tmp_path.glob("*.journal"))) > 2
    adopt(tmp_path)
    assert stored() == {long: "ok", short: "ok", cut: "interrupted"}
    assert list(tmp_path.glob("*.journal")) == []


def test_what_was_stored_before_the_crash_stays_as_it_is(tmp_path: Path) -> None:
    done = uuid4()
    ship([record(done)], rejected_file=tmp_path / "rejected.jsonl")
    leave_behind(tmp_path, ("start", done))
    adopt(tmp_path)
    assert stored() == {done: "ok"}


def test_a_torn_last_line_is_a_call_that_was_cut(tmp_path: Path) -> None:
    cut = uuid4()
    leave_behind(tmp_path, ("start", cut), ("finish", cut))
    (path,) = tmp_path.glob("*.journal")
    os.truncate(path, path.stat().st_size - 2)
    adopt(tmp_path)
    assert stored() == {cut: "interrupted"}


def test_adoption_that_fails_leaves_everything_for_the_next_time(tmp_path: Path) -> None:
    done, cut = uuid4(), uuid4()
    leave_behind(tmp_path, ("start", done), ("start", cut), ("finish", done), segment_bytes=300)
    files = sorted(tmp_path.glob("*.journal"))
    with without_table(), pytest.raises(DatabaseError):
        adopt(tmp_path)
    assert sorted(tmp_path.glob("*.journal")) == files
    assert adopt(tmp_path) == 2
    assert stored() == {done: "ok", cut: "interrupted"}


def test_two_processes_do_not_share_out_what_one_left(tmp_path: Path) -> None:
    """One would have the start, the other the end, and the start would be stored as a call that was cut."""
    leave_behind(tmp_path, ("start", uuid4()))
    with adopting(tmp_path) as alone:
        assert alone
        assert adopt(tmp_path) == 0
    assert stored() == {}
    assert adopt(tmp_path) == 1


def test_the_shipper_adopts_too(journal: Journal, run_shipper: Callable[[], Shipper]) -> None:
    cut = uuid4()
    leave_behind(journal.directory, ("start", cut))
    run_shipper()
    wait_until(lambda: stored() == {cut: "interrupted"}, what="the cut call stored")
