"""The journal keeps what was finished, whatever becomes of the disk and of the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.journal import Journal, JournalFull, Line, abandoned, adopting, parse_lines

ROOT = Path(__file__).parents[2]
A, B, C = "a" * 32, "b" * 32, "c" * 32


def records_of(journal: Journal) -> list[bytes]:
    """Every finished record that is unshipped, segment by segment, marked as shipped."""
    found: list[bytes] = []
    for segment in list(journal.segments):
        while segment.unshipped_bytes:
            records, offset = journal.read(segment, limit_bytes=1_000_000)
            if offset == segment.shipped:
                break
            found += records
            segment.shipped = offset
        journal.release(segment)
    return found


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.journal"))


def run_journal(directory: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code with a `journal` in a process of its own."""
    prelude = (
        "import json, os, resource, signal, sys\nfrom pathlib import Path\n"
        "from billing.journal import *\n"
        "journal = Journal(Path(sys.argv[1]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", prelude + code, str(directory)], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )


# -- lines -------------------------------------------------------------------------------------------


def test_what_is_noted_is_read_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.start(A, b'{"n": 1}')
    journal.start(B, b'{"n": 2}')
    journal.finish(B, b'{"n": 3}')
    journal.finish(A, '{"n": "🙂\\n"}'.encode())
    written = list(parse_lines(journal.segments[0].path.read_bytes()))
    assert written == [
        Line(False, A, b'{"n": 1}'), Line(False, B, b'{"n": 2}'), Line(True, B, b'{"n": 3}'),
        Line(True, A, '{"n": "🙂\\n"}'.encode()),
    ]  # fmt: skip
    assert records_of(journal) == [b'{"n": 3}', '{"n": "🙂\\n"}'.encode()]
    assert records_of(journal) == []
    journal.close()


def test_reading_in_small_steps_loses_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for number in range(20):
        journal.finish(A, b'"%s"' % (b"x" * number * 7))
    (segment,) = journal.segments
    found: list[bytes] = []
    while segment.unshipped_bytes:
        records, segment.shipped = journal.read(segment, limit_bytes=10)
        found += records
    assert [len(record) - 2 for record in found] == [number * 7 for number in range(20)]
    journal.close()


def written(tmp_path: Path) -> bytes:
    journal = Journal(tmp_path)
    journal.start(A, b'{"n": 1}')
    journal.finish(A, b'{"n": 2}')
    journal.finish(B, b'{"n": 3}')
    (path,) = files(tmp_path)
    data = path.read_bytes()
    journal.close()
    return data


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    data = written(tmp_path)
    whole = list(parse_lines(data))
    last = data.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(data) - 1):
        assert list(parse_lines(data[:end])) == whole[:2]


def test_a_start_cannot_be_taken_for_an_end(tmp_path: Path) -> None:
    lines = written(tmp_path).splitlines(keepends=True)
    assert list(parse_lines(lines[0].replace(b"S ", b"F ", 1))) == []


@given(data=st.data())
def test_a_damaged_line_costs_no_other(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    good = written(tmp_path_factory.mktemp("journal"))
    lines = good.splitlines(keepends=True)
    damaged = data.draw(st.integers(0, 2))
    place = data.draw(st.integers(0, len(lines[damaged]) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value not in (0x0A, lines[damaged][place])))
    spoiled = bytearray(lines[damaged])
    spoiled[place] = byte
    found = list(parse_lines(b"".join([*lines[:damaged], bytes(spoiled), *lines[damaged + 1 :]])))
    assert found == [line for number, line in enumerate(parse_lines(good)) if number != damaged]


@given(garbage=st.binary(max_size=200))
def test_no_bytes_break_the_reading(garbage: bytes) -> None:
    assert list(parse_lines(garbage)) == []


# -- lines of requests that come along together ------------------------------------------------------


def test_lines_noted_together_are_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    write = os.write

    def counted(descriptor: int, data: bytes) -> int:
        writes.append(data)
        return write(descriptor, data)

    journal = Journal(tmp_path)
    monkeypatch.setattr(os, "write", counted)
    journal.start(A, b"1", alone=False)
    journal.start(B, b"2", alone=False)
    journal.finish(A, b"3", alone=False)
    assert (writes, journal.segments[0].size) == ([], 0)
    journal.write(B)
    journal.write(A)
    assert len(writes) == 1
    assert [(line.finished, line.request_id, line.json) for line in parse_lines(writes[0])] == [
        (False, A, b"1"), (False, B, b"2"), (True, A, b"3"),
    ]  # fmt: skip
    assert (journal.segments[0].open, records_of(journal)) == ({B}, [b"3"])
    journal.close()


def test_nobody_goes_on_while_another_thread_is_about_to_write_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(tmp_path)
    journal.start(A, b"1", alone=False)
    about_to_write, may_write, write = threading.Event(), threading.Event(), os.write

    def held_up(descriptor: int, data: bytes) -> int:
        about_to_write.set()
        assert may_write.wait(10)
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", held_up)
    sizes: list[int] = []

    def goes_on() -> None:
        journal.write(A)
        sizes.append(journal.segments[0].size)

    shipper, request = threading.Thread(target=journal.write_noted), threading.Thread(target=goes_on)
    shipper.start()
    assert about_to_write.wait(10)
    request.start()
    request.join(0.2)
    assert request.is_alive()
    may_write.set()
    shipper.join()
    request.join()
    assert sizes == [len(b"S 00000000 \n" + A.encode() + b" 1")]
    journal.close()


def test_what_was_noted_and_not_written_goes_with_the_next_line_or_with_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.finish(A, b"1", alone=False)
    journal.finish(B, b"2")
    assert records_of(journal) == [b"1", b"2"]
    journal.finish(C, b"3", alone=False)
    path = journal.segments[0].path
    journal.close()
    assert [line.json for line in parse_lines(path.read_bytes())] == [b"1", b"2", b"3"]


# -- segments ----------------------------------------------------------------------------------------


def test_a_full_segment_is_followed_by_a_new_one_and_goes_when_shipped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    records = [b'"%s"' % (letter * 100) for letter in (b"x", b"y", b"z")]
    for request_id, record in zip((A, B, C), records, strict=True):
        journal.finish(request_id, record)
    assert len(files(tmp_path)) == 3
    assert records_of(journal) == records
    assert files(tmp_path) == [journal.segments[-1].path]
    journal.close()
    assert files(tmp_path) == []


def test_a_segment_outlives_the_calls_that_began_in_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    journal.start(A, b'"%s"' % (b"x" * 100))
    journal.start(B, b"1")
    first, second = journal.segments
    assert records_of(journal) == []
    assert first.path.exists()
    journal.finish(A, b"2")
    assert records_of(journal) == [b"2"]
    assert (first.path.exists(), second.path.exists()) == (False, True)
    assert journal.segments == [second]
    journal.close()


def test_the_backlog_is_what_was_not_shipped(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    assert journal.backlog_bytes == 0
    for request_id in (A, B):
        journal.finish(request_id, b'"%s"' % (b"x" * 100))
    assert journal.backlog_bytes == sum(path.stat().st_size for path in files(tmp_path))
    records_of(journal)
    assert journal.backlog_bytes == 0
    journal.close()


@pytest.mark.parametrize("fsync", ["never", "second", "always"])
def test_lines_are_forced_to_disk_as_configured(tmp_path: Path, fsync: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    journal = Journal(tmp_path, fsync=fsync, segment_bytes=100)
    for request_id in (A, B):
        journal.finish(request_id, b'"%s"' % (b"x" * 100))
    descriptors = [segment.descriptor for segment in journal.segments]
    assert synced == (descriptors if fsync == "always" else [])
    journal.sync()
    # Also those that were full before the second was over, and none twice.
    journal.sync()
    assert synced == ([] if fsync == "never" else descriptors)
    journal.close()


# -- when the process goes ---------------------------------------------------------------------------


def test_a_living_process_keeps_its_segments(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.finish(A, b"1")
    assert list(abandoned(tmp_path)) == []
    journal.close()
    assert [segment.size for segment in abandoned(tmp_path)] == [files(tmp_path)[0].stat().st_size]


def test_a_killed_process_loses_nothing_that_was_noted(tmp_path: Path) -> None:
    code = f"journal.start('{A}', b'1'); journal.finish('{A}', b'2'); journal.start('{B}', b'3')\n"
    killed = run_journal(tmp_path, code + "os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -signal.SIGKILL
    (segment,) = abandoned(tmp_path)
    found = list(parse_lines(segment.path.read_bytes()))
    os.close(segment.descriptor)
    assert found == [Line(False, A, b"1"), Line(True, A, b"2"), Line(False, B, b"3")]


def test_a_segment_its_owner_has_just_removed_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the file and locking it, the owner may be done with it."""
    journal = Journal(tmp_path)
    journal.finish(A, b"1")
    open_file = os.open

    def open_then_lose(path: Path, flags: int) -> int:
        descriptor = open_file(path, flags)
        records_of(journal)
        journal.close()
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    assert list(abandoned(tmp_path)) == []


def test_closing_keeps_what_is_not_shipped_and_what_is_not_finished(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.start(A, b"1")
    records_of(journal)
    journal.close()
    assert len(files(tmp_path)) == 1


def test_one_adoption_at_a_time(tmp_path: Path) -> None:
    with adopting(tmp_path) as first, adopting(tmp_path) as second:
        assert (first, second) == (True, False)
    with adopting(tmp_path) as third:
        assert third


# -- when the disk is full ---------------------------------------------------------------------------


def full_disk(code: str, tmp_path: Path) -> dict[str, Any]:
    """Run code with `limit(bytes)`, after which no file of the process may grow beyond; what it put in `seen`."""
    setting = (
        "seen = {}\n"
        "def limit(size): resource.setrlimit(resource.RLIMIT_FSIZE, (size, -1))\n"
        "def refused(note, *args):\n"
        "    try: note(*args)\n"
        "    except JournalFull: return True\n"
        "    return False\n"
        "def ids(): return [(l.finished, l.request_id[0]) for s in journal.segments "
        "for l in parse_lines(os.pread(s.descriptor, s.size, 0))]\n"
    )
    done = run_journal(tmp_path, setting + code + "\nprint(json.dumps(seen))")
    assert done.returncode == 0
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.mark.parametrize("room", [0, 1, 30, 60])
def test_with_a_full_disk_calls_are_refused_and_finished_ones_kept_until_there_is_room(
    tmp_path: Path, room: int
) -> None:
    """With `room` bytes left the line is written in part, which the next one must survive."""
    seen = full_disk(
        f"""
journal.start("{A}", b"{{}}")
limit(journal.segments[0].size + {room})
seen["start refused"] = refused(journal.start, "{B}", b'"' + b"x" * 100 + b'"')
seen["finish refused"] = refused(journal.finish, "{A}", b'"' + b"x" * 100 + b'"')
seen["still full"] = refused(journal.retry_unwritten)
seen["backlog"] = journal.backlog_bytes > 100
limit(-1)
journal.retry_unwritten()
journal.start("{C}", b"{{}}")
seen["ids"] = ids()
seen["open"] = sorted(id for s in journal.segments for id in s.open)
""",
        tmp_path,
    )
    assert seen == {
        "start refused": True, "finish refused": False, "still full": True, "backlog": True,
        "ids": [[False, "a"], [True, "a"], [False, "c"]], "open": [C],
    }  # fmt: skip


@pytest.mark.parametrize(("room", "whole"), [(0, 0), (60, 0), (148, 1), (295, 1), (296, 2), (330, 2)])
def test_of_lines_written_together_a_full_disk_takes_some_and_each_request_is_told_of_its_own(
    tmp_path: Path, room: int, whole: int
) -> None:
    """Three lines of 148 bytes: two starts and an end."""
    seen = full_disk(
        f"""
journal.start("{C}", b"{{}}")
limit(journal.segments[0].size + {room})
for id in ("{A}", "{B}"):
    journal.start(id, b'"' + b"x" * 101 + b'"', alone=False)
journal.finish("{C}", b'"' + b"y" * 101 + b'"', alone=False)
seen["refused"] = [refused(journal.write, id) for id in ("{C}", "{B}", "{A}")]
seen["asked again"] = [refused(journal.write, id) for id in ("{C}", "{B}", "{A}")]
limit(-1)
journal.retry_unwritten()
seen["ids"] = ids()
seen["open"] = sorted(id for s in journal.segments for id in s.open)
""",
        tmp_path,
    )
    taken = ["a", "b"][:whole]
    assert seen == {
        "refused": [False, whole < 2, whole < 1], "asked again": [False, False, False],
        "ids": [[False, "c"], *([False, letter] for letter in taken), [True, "c"]],
        "open": [letter * 32 for letter in taken],
    }  # fmt: skip


def test_a_refused_start_that_nobody_asks_after_is_forgotten_with_its_call(tmp_path: Path) -> None:
    seen = full_disk(
        f"""
limit(0)
journal.start("{A}", b"1", alone=False)
journal.finish("{A}", b"2")
seen["refused"] = sorted(journal._refused)
""",
        tmp_path,
    )
    assert seen == {"refused": []}


def test_half_a_record_is_not_shipped(tmp_path: Path) -> None:
    seen = full_disk(
        f"""
journal.finish("{A}", b"1")
limit(journal.segments[0].size + 60)
seen["refused"] = refused(journal.finish, "{B}", b'"' + b"x" * 100 + b'"')
limit(-1)
journal.finish("{C}", b"3")
journal.retry_unwritten()
seen["records"] = [len(record) for record in journal.read(journal.segments[0], limit_bytes=1000)[0]]
""",
        tmp_path,
    )
    assert seen == {"refused": False, "records": [1, 1, 102]}


def test_a_segment_that_ends_in_half_a_line_is_shipped_to_its_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=100)
    journal.finish(A, b'"%s"' % (b"x" * 60))
    (first,) = journal.segments
    os.write(first.descriptor, b"F 0000")
    first.size += 6
    journal.finish(B, b"1")
    assert records_of(journal) == [b'"%s"' % (b"x" * 60), b"1"]
    assert not first.path.exists()
    journal.close()


def test_no_room_for_a_new_segment_is_a_full_disk(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    journal = Journal(directory, segment_bytes=50)
    journal.finish(A, b'"%s"' % (b"x" * 60))
    moved = directory.rename(tmp_path / "moved")
    with pytest.raises(JournalFull):
        journal.start(B, b"1")
    journal.finish(C, b"2")
    moved.rename(directory)
    journal.retry_unwritten()
    assert records_of(journal) == [b'"%s"' % (b"x" * 60), b"2"]
    journal.close()


def test_a_disk_that_cannot_be_forced_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    journal = Journal(tmp_path, fsync="always")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(JournalFull):
        journal.start(A, b"1")
    journal.finish(B, b"2")
    monkeypatch.undo()
    journal.retry_unwritten()
    assert set(records_of(journal)) == {b"2"}
    journal.close()
