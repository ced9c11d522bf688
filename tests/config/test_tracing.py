"""Traces by an optional extra: off without it, a span a call with it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from billing.journal import Journal, parse_lines
from billing.models import Outcome
from config.tracing import ENDPOINT, TracedLog, traced
from gateway.call import Call, RecordLog
from tests.gateway.ledger import CALLER

# Others bring the interface along; the extra brings what does something.
INSTALLED = bool(importlib.util.find_spec("opentelemetry") and importlib.util.find_spec("opentelemetry.sdk"))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def finish_a_call(log: RecordLog) -> Call:
    call = Call(caller=CALLER, model="Qwen3.8-27B", endpoint="chat", stream=True, log=log)
    call.accept()
    call.status, call.upstream, call.first_byte_at = 200, "pool-a", call.started_at + 0.25
    call.usage = {"prompt_tokens": 12, "completion_tokens": 34}
    call.finish(Outcome.OK)
    return call


def test_unless_asked_for_the_journal_itself_is_written_to(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT, raising=False)
    assert traced(journal) is journal


@pytest.mark.skipif(INSTALLED, reason="the extra is installed")
def test_without_the_extra_it_is_said_and_nothing_else_changes(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    assert traced(journal) is journal
    assert "Install the extra `tracing`" in caplog.text


@pytest.mark.skipif(not INSTALLED, reason="the extra `tracing` is not installed")
def test_a_finished_call_is_a_record_and_a_span_of_the_same_id(journal: Journal) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # type: ignore[import-not-found, unused-ignore]

    exporter = InMemorySpanExporter()
    log = TracedLog(journal, exporter=exporter)
    call = finish_a_call(log)
    log.provider.force_flush()
    (span,) = exporter.get_finished_spans()
    assert f"{span.context.trace_id:032x}" == call.request_id.replace("-", "")
    assert span.name == "chat Qwen3.8-27B"
    assert span.attributes["gen_ai.usage.output_tokens"] == 34
    assert span.attributes["tokenfactory.upstream"] == "pool-a"
    assert abs(span.start_time - call.started_at * 1e9) < 2_000
    assert [event.timestamp - span.start_time for event in span.events] == [250_000_000]
    assert [line.finished for line in parse_lines(journal.segments[0].path.read_bytes())] == [False, True]


@pytest.mark.skipif(not INSTALLED, reason="the extra `tracing` is not installed")
def test_a_trace_that_cannot_be_made_costs_the_call_nothing(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # type: ignore[import-not-found, unused-ignore]

    log = TracedLog(journal, exporter=InMemorySpanExporter())
    monkeypatch.setattr(log, "_tracer", None)
    finish_a_call(log)
    assert [line.finished for line in parse_lines(journal.segments[0].path.read_bytes())] == [False, True]
    assert "has no trace" in caplog.text
