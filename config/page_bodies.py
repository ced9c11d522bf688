"""How much a request to the pages may hold. Django stores a body, on disk where it is large, before any view sees it:
so it is counted as it comes, and what comes beyond the limit is stored nowhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

type Scope = dict[str, Any]
type Receive = Callable[[], Awaitable[dict[str, Any]]]
type GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]

# A document, and the form around it.
LIMIT_BYTES = (settings.MAX_DOCUMENT_MIB + 2) * 1024 * 1024
TOO_LARGE = "token_factory.too_large"


def limited(scope: Scope, receive: Receive, *, limit_bytes: int = LIMIT_BYTES) -> Receive:
    """`receive`, of a body that ends where the limit is passed. The scope says then that it was."""
    left = limit_bytes
    refused = _declared(scope) > limit_bytes

    async def counted() -> dict[str, Any]:
        nonlocal left, refused
        if scope.get(TOO_LARGE):
            return await _until_gone(receive)
        if not refused:
            message = await receive()
            left -= len(message.get("body", b""))
            refused = left < 0
        if refused:
            scope[TOO_LARGE] = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return message

    return counted


def _declared(scope: Scope) -> int:
    """The server's parser has refused what is no number."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)


async def _until_gone(receive: Receive) -> dict[str, Any]:
    """The rest of the body is let go by."""
    while (message := await receive())["type"] == "http.request":
        pass
    return message


class BodyLimitMiddleware:
    """Answers 413 in place of the view; before the form's token is looked for, which went with the body."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if not getattr(request, "scope", {}).get(TOO_LARGE):
            return self.get_response(request)
        return sync_to_async(_refusal)(request) if iscoroutinefunction(self) else _refusal(request)


def _refusal(request: HttpRequest) -> HttpResponse:
    return render(request, "413.html", status=413)
