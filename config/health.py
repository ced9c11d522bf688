"""What orchestrators and Prometheus ask a web process: `/readyz` and `/metrics`; `/healthz` is in `config.asgi`."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address

from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, JsonResponse
from django.utils import timezone

from accounts.access import public
from accounts.client_address import client_address
from billing.models import UsageRecord
from gateway.metrics import CONTENT_TYPE, exposition
from gateway.runtime import has_runtime, runtime

# Records older than this that nobody has rated: no worker is at work.
RATED_WITHIN = timedelta(minutes=2)
MAX_BACKLOG_BYTES = 16 * 1024 * 1024


@public
def readyz(request: HttpRequest) -> HttpResponse:
    """200 while everything this process needs is there, else 503; each part with its state in words."""
    if not has_runtime():
        return JsonResponse({"ready": False, "gateway": "does not run in this process"}, status=503)
    parts = {"database": _database(), "journal": _journal(), "worker": _worker(), "upstreams": _upstreams()}
    # Calls are served and recorded without the others; those are said, and are no reason to send people elsewhere.
    ready = parts["database"] == "ok" and parts["upstreams"] == "ok"
    return JsonResponse({"ready": ready, **parts}, status=200 if ready else 503)


@public
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' text format, for the networks in METRICS_NETWORKS."""
    address = ip_address(client_address(request) or "0.0.0.0")  # noqa: S104 -- no address, not a bind
    if not has_runtime():
        return HttpResponse(status=503)
    if not any(address in network for network in settings.METRICS_NETWORKS):
        return HttpResponseForbidden("Metrics are for the networks in METRICS_NETWORKS.\n", content_type="text/plain")
    return HttpResponse(exposition(runtime()), content_type=CONTENT_TYPE)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return f"away: {type(error).__name__}"
    return "ok"


def _journal() -> str:
    gateway = runtime()
    if gateway.shipper.last_error:
        return f"waits: {gateway.shipper.last_error}"
    return "ok" if gateway.journal.backlog_bytes < MAX_BACKLOG_BYTES else "behind"


def _worker() -> str:
    try:
        waiting = UsageRecord.objects.filter(rated_at=None, finished_at__lt=timezone.now() - RATED_WITHIN).exists()
    except DatabaseError:
        return "unknown"
    return "behind: usage records wait to be rated" if waiting else "ok"


def _upstreams() -> str:
    return "ok" if runtime().upstreams.models() else "no model is served"
