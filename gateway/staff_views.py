"""/staff/upstreams/: the model servers as this web process sees them, for the installation's staff."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import staff_required
from accounts.middleware import TeamRequest
from gateway.upstream_state import process_state


@staff_required
@require_safe
def upstreams(request: TeamRequest) -> HttpResponse:
    template = "gateway/upstreams.html" + ("#upstream-states" if request.htmx else "")
    # Without Redis there is one web process, and nothing to tell it from.
    return render(request, template, {"process": process_state(), "has_others": bool(settings.REDIS_URL)})
