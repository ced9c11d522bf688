"""Error pages, which also read the database: the reader's name, his team, its quota.

Under ASGI Django renders them in a thread of the event loop's pool. No request ends there, so nothing would
ever close the connection they open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import connections
from django.http import HttpResponse
from django.views import defaults

type ErrorView = Callable[..., HttpResponse]


def _giving_back(view: ErrorView) -> ErrorView:
    @wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(*args, **kwargs)
        finally:
            for connection in connections.all(initialized_only=True):
                # Whoever is inside a transaction still needs it.
                if not connection.in_atomic_block:
                    connection.close_if_unusable_or_obsolete()

    return wrapper


bad_request = _giving_back(defaults.bad_request)
permission_denied = _giving_back(defaults.permission_denied)
page_not_found = _giving_back(defaults.page_not_found)
server_error = _giving_back(defaults.server_error)
