"""Pages of other origins that may call `/v1` from the browser: none, unless the installation names them.

Such a page calls with a key and reads whole answers, streams and the headers that clients look at. Never with
cookies: a session that comes along is not looked at, and `Access-Control-Allow-Credentials` is never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from gateway.call import new_request_id
from gateway.http import Headers, Receive, Scope, Send

type Application = Callable[[Scope, Receive, Send], Coroutine[Any, Any, Any]]

PATHS = ("/v1/", "/api/v1/")
METHODS = b"GET, POST"
REMEMBERED_SECONDS = 600
EXPOSED = b", ".join(
    [
        b"x-request-id", b"request-id", b"retry-after", b"x-dropped-params", b"x-adapted",
        b"x-ratelimit-limit-user-rpm", b"x-ratelimit-remaining-user-rpm", b"x-ratelimit-reset",
        b"x-ratelimit-limit-user-daily-points", b"x-ratelimit-used-user-daily-points",
        b"x-ratelimit-remaining-user-daily-points", b"x-ratelimit-reset-user-daily-points",
    ]
)  # fmt: skip


def with_cors(application: Application, *, origins: Iterable[str]) -> Application:
    """The application itself where no origin is allowed."""
    allowed = frozenset(origin.strip().rstrip("/").lower().encode("ascii") for origin in origins)
    if not allowed:
        return application

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith(PATHS):
            await application(scope, receive, send)
            return
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"")
        own: Headers = [(b"vary", b"Origin")]
        if origin.lower() in allowed:
            own.append((b"access-control-allow-origin", origin))
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                await _permit(send, own, headers.get(b"access-control-request-headers", b""))
                return
            own.append((b"access-control-expose-headers", EXPOSED))
            scope = {**scope, "headers": [header for header in scope["headers"] if header[0] != b"cookie"]}
        await application(scope, receive, _adding(send, own))

    return answer


async def _permit(send: Send, own: Headers, wanted: bytes) -> None:
    """Whatever headers a client adds are fine: none of them gives it anything that a key does not."""
    permitted = [
        (b"access-control-allow-methods", METHODS),
        (b"access-control-allow-headers", wanted),
        (b"access-control-max-age", b"%d" % REMEMBERED_SECONDS),
        (b"x-request-id", new_request_id().encode("ascii")),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": [*own, *permitted]})
    await send({"type": "http.response.body", "body": b""})


def _adding(send: Send, own: Headers) -> Send:
    async def add(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *own]
        await send(message)

    return add
