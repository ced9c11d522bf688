"""Announcing work: through a real broker, at once, and without a broker too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import Connection, Producer

from billing import tasks
from billing.models import UsageRecord
from billing.rates import load_rates
from config.celery import app
from tests.billing.factories import make_record, totals


@pytest.fixture
def messages(tmp_path: Path) -> Path:
    """Where the broker keeps what nobody has read yet."""
    folder = tmp_path / "messages"
    folder.mkdir()
    return folder


@pytest.fixture
def producer(messages: Path) -> Iterator[Producer]:
    folders = {"data_folder_in": messages, "data_folder_out": messages, "control_folder": messages.parent}
    options = {name: str(folder) for name, folder in folders.items()}
    with Connection("filesystem://", transport_options=options) as connection:
        yield Producer(connection)


@pytest.mark.django_db
def test_the_task_rates_whatever_waits() -> None:
    load_rates()
    for _ in range(3):
        make_record()
    tasks.rate_unrated()
    assert not UsageRecord.objects.filter(rated_at=None).exists()
    assert totals()["requests"] == 3


def test_the_task_has_the_name_that_the_schedule_calls() -> None:
    names = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert tasks.rate_unrated.name in names


def test_an_announcement_is_a_message_for_the_worker(producer: Producer, messages: Path) -> None:
    tasks.announce(producer)
    (message,) = messages.iterdir()
    assert b"billing.rate_unrated" in message.read_bytes()


def test_a_worker_that_is_away_does_not_find_a_heap_of_messages(producer: Producer, messages: Path) -> None:
    for _ in range(3 * tasks.MAX_ANNOUNCED):
        tasks.announce(producer)
    assert len(list(messages.iterdir())) == tasks.MAX_ANNOUNCED


def test_many_kicks_are_few_announcements_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[int] = []
    gate, second = threading.Event(), threading.Event()

    def announce(_producer: Producer) -> None:
        gate.wait()
        announced.append(1)
        if len(announced) == 2:
            second.set()

    monkeypatch.setattr(tasks, "announce", announce)
    monkeypatch.setattr(tasks, "ANNOUNCE_SECONDS", 0)
    announcer = tasks._Announcer()
    announcer.kick()
    while announcer._wanted.is_set():
        threading.Event().wait(0.001)
    # The first announcement is under way: all these together are one more.
    for _ in range(100):
        announcer.kick()
    gate.set()
    assert second.wait(10)
    assert len(announced) == 2
    assert not announcer._wanted.is_set()


def test_a_broker_that_is_away_is_survived_and_found_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = iter([ConnectionError("refused"), ConnectionError("refused"), None])
    tried = threading.Semaphore(0)

    def announce(_producer: Producer) -> None:
        outcome = next(attempts)
        tried.release()
        if outcome is not None:
            raise outcome

    monkeypatch.setattr(tasks, "announce", announce)
    monkeypatch.setattr(tasks, "ANNOUNCE_SECONDS", 0)
    announcer = tasks._Announcer()
    for _ in range(3):
        announcer.kick()
        assert tried.acquire(timeout=10)
    assert caplog.text.count("wait for the sweep") == 1
