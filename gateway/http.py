"""A thin layer over ASGI for the gateway's own application: reading a body, sending an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, cast

from django.conf import settings

from config.awaitables import NOTHING_TO_AWAIT
from gateway.errors import CallError, InvalidRequest

type Scope = dict[str, Any]
type Receive = Callable[[], Awaitable[dict[str, Any]]]
type Send = Callable[[dict[str, Any]], Awaitable[None]]
type Headers = list[tuple[bytes, bytes]]

MAX_BODY_BYTES = settings.MAX_BODY_MIB * 1024 * 1024
JSON = (b"content-type", b"application/json")


class ClientGone(Exception):
    """The client left before its request was complete."""


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, *, limit_bytes: int = MAX_BODY_BYTES) -> bytes:
    if int(headers.get(b"content-length", 0)) > limit_bytes:
        raise too_large(limit_bytes)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        text = "Packed request bodies are not taken: send it without Content-Encoding"
        raise InvalidRequest(text, status=415, code="unsupported_media_type")
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > limit_bytes:
            raise too_large(limit_bytes)
        return body
    pieces = [body]
    size = len(body)
    while message["type"] == "http.request" and message.get("more_body"):
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > limit_bytes:
            raise too_large(limit_bytes)
    if message["type"] == "http.disconnect":
        raise ClientGone
    return b"".join(pieces)


def too_large(limit_bytes: int) -> InvalidRequest:
    text = f"The request body is larger than {limit_bytes // (1024 * 1024)} MiB"
    return InvalidRequest(text, status=413, code="request_too_large")


async def send_answer(send: Send, *, status: int, headers: Headers, body: bytes) -> None:
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: CallError, *, request_id: bytes) -> None:
    content_type = getattr(error, "content_type", b"application/json")
    headers = [(b"content-type", content_type), (b"x-request-id", request_id), *error.headers]
    await send_answer(send, status=error.status, headers=headers, body=error.body())


def printable(name: str) -> str:
    """A client's own word as part of a header: printable ASCII without the list's comma, 64 characters at most."""
    return "".join(c if " " < c <= "~" and c != "," else "?" for c in name[:64])


def begun(work: Awaitable[None]) -> Awaitable[None] | None:
    """Run a coroutine as far as it goes at once: None when it has ended, else what is to be awaited for its rest."""
    if work is NOTHING_TO_AWAIT:
        return None
    coroutine = cast("Coroutine[Any, Any, None]", work)
    try:
        waits_for = coroutine.send(None)
    except StopIteration:
        return None
    return _Rest(coroutine, waits_for)


class _Rest:
    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, None], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        coroutine, waits_for = self._coroutine, self._waits_for
        try:
            while True:
                try:
                    value = yield waits_for
                except BaseException as error:  # noqa: BLE001 -- the coroutine's own to handle, cancellation too
                    waits_for = coroutine.throw(error)
                else:
                    waits_for = coroutine.send(value)
        except StopIteration:
            return
