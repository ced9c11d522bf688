"""Lists of what one has kept: newest first, one page after the other; somebody else's does not exist."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django.db.models import Q
from django.http import Http404
from django.utils.dateparse import parse_datetime

from playground.history import Kept
from playground.request import PersonRequest

ROWS_A_PAGE = 30


def own[K: Kept](request: PersonRequest, kind: type[K], id: uuid.UUID) -> K:
    """Raises Http404 for everybody else's."""
    found: K | None = kind.objects.of(request.user, request.team).filter(pk=id).first()
    if found is None:
        raise Http404
    return found


def history_of(request: PersonRequest, kind: type[Kept], *, current: Kept | None = None) -> dict[str, Any]:
    """What the list needs: a page of rows, below the one that `after` names, and where the next page begins."""
    rows = kind.objects.of(request.user, request.team)
    moment, _comma, last_id = request.GET.get("after", "").partition(",")
    created_at, id = _moment(moment), _uuid(last_id)
    if created_at is not None and id is not None:
        rows = rows.filter(created_at__lte=created_at).filter(Q(created_at__lt=created_at) | Q(id__lt=id))
    page = list(rows[: ROWS_A_PAGE + 1])
    more = ""
    if len(page) > ROWS_A_PAGE:
        page.pop()
        more = f"{page[-1].created_at.isoformat()},{page[-1].pk}"
    return {"rows": page, "more": more, "current": current}


def _moment(text: str) -> datetime | None:
    try:
        moment = parse_datetime(text)
    except ValueError:
        return None
    return moment if moment and moment.tzinfo else None


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
