"""OpenTelemetry traces, where they are wanted: each finished call as one span, made of its usage record.

Off unless OTEL_EXPORTER_OTLP_ENDPOINT is set and the extra `tracing` is installed; a call then costs nothing more than
before, for the journal itself stays what the relay writes to. Spans leave in a thread of the SDK's. A trace's id is its
request's id, so what a client quotes from `x-request-id` is what one looks for.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import Any

import orjson

from gateway.call import RecordLog

log = logging.getLogger("config")

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
FLUSH_MILLISECONDS = 2_000
# Columns of the record by the names that the semantic conventions have for them, and our own for the rest.
ATTRIBUTES = {
    "endpoint": "gen_ai.operation.name",
    "model": "gen_ai.request.model",
    "upstream_id": "gen_ai.response.id",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "status": "http.response.status_code",
    "error_code": "error.type",
    "upstream": "tokenfactory.upstream",
    "cached_tokens": "tokenfactory.cached_tokens",
    "outcome": "tokenfactory.outcome",
    "stream": "tokenfactory.stream",
    "source": "tokenfactory.source",
    "team_id": "tokenfactory.team",
    "key_id": "tokenfactory.key",
}


def traced(records: RecordLog) -> RecordLog:
    """The log itself, or one that makes spans too."""
    if not os.environ.get(ENDPOINT):
        return records
    try:
        return TracedLog(records, exporter=_exporter())
    except ImportError as error:
        log.warning("%s is set, and no trace is made: %s. Install the extra `tracing`.", ENDPOINT, error)
        return records


def flush(records: RecordLog) -> None:
    """Send what is left, before the process ends."""
    if isinstance(records, TracedLog):
        records.provider.force_flush(FLUSH_MILLISECONDS)


class TracedLog:
    """Passes records on to the journal and makes a span of each that has ended."""

    def __init__(self, records: RecordLog, *, exporter: Any) -> None:
        from opentelemetry.sdk.resources import Resource  # type: ignore[import-not-found, unused-ignore]
        from opentelemetry.sdk.trace import TracerProvider  # type: ignore[import-not-found, unused-ignore]
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # type: ignore[import-not-found, unused-ignore]
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator  # type: ignore[import-not-found, unused-ignore]

        class RequestIds(RandomIdGenerator):  # type: ignore[misc, unused-ignore]
            """The next trace's id is set right before its span begins, in the same step of the loop."""

            trace_id = 0

            def generate_trace_id(self) -> int:
                return self.trace_id

        self._records = records
        self._ids = RequestIds()
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "token-factory")})
        self.provider = TracerProvider(resource=resource, id_generator=self._ids)
        self.provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self.provider.get_tracer("token_factory")

    def start(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        self._records.start(request_id, json, alone=alone)

    def write(self, request_id: str) -> None:
        self._records.write(request_id)

    def finish(self, request_id: str, json: bytes, *, alone: bool = True) -> None:
        self._records.finish(request_id, json, alone=alone)
        try:
            self._span(request_id, orjson.loads(json))
        except Exception:
            # The record is written; whatever is wrong with its trace must not be the caller's.
            log.exception("request %s has no trace", request_id)

    def _span(self, request_id: str, record: dict[str, Any]) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, StatusCode

        self._ids.trace_id = int(request_id, 16)
        span = self._tracer.start_span(
            f"{record['endpoint']} {record['model']}",
            context=Context(),
            kind=SpanKind.SERVER,
            attributes={
                name: record[column] for column, name in ATTRIBUTES.items() if record[column] not in ("", None)
            },
            start_time=_nanoseconds(record["started_at"]),
        )
        if record["first_byte_at"]:
            span.add_event("first byte", timestamp=_nanoseconds(record["first_byte_at"]))
        if record["status"] >= 500 or record["outcome"] == "interrupted":
            span.set_status(StatusCode.ERROR, record["error_code"] or record["outcome"])
        span.end(end_time=_nanoseconds(record["finished_at"]))


def _exporter() -> Any:
    """Over HTTP; it reads the usual OTEL_ variables."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # type: ignore[import-not-found, unused-ignore]

    return OTLPSpanExporter()


def _nanoseconds(moment: str) -> int:
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    return (int(at.timestamp()) * 1_000_000 + at.microsecond) * 1_000
