"""What a caller is told when a call fails.

CallError                 status, type, code, param, Retry-After: its whole answer
├── InvalidRequest        400 (or 422, 413, 415): the request can't be served as it is
├── Unauthorized          401
├── Forbidden             403
├── RateLimited           429 with Retry-After: a limit's code
├── NotFound              404
├── MethodNotAllowed      405 with Allow
├── UpstreamUnavailable   502 with Retry-After: no connection, a broken answer
├── UpstreamSaturated     503 with Retry-After: nobody can take the request now
├── UpstreamTimeout       504
└── UpstreamRefusal       the backend's own status and body, passed on untouched
"""

from __future__ import annotations

from typing import ClassVar

import httpx
import orjson

from gateway.sse import EventTooLarge

CUT = "The model server ended the stream before the answer was complete."


class CallError(Exception):
    status: int = 500
    type: ClassVar[str] = "api_error"
    anthropic_type: ClassVar[str] = "api_error"
    default_code: ClassVar[str | None] = None
    default_retry_after_seconds: ClassVar[int | None] = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        status: int | None = None,
        retry_after_seconds: int | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param
        self.status = status or self.status
        self.headers = headers
        if retry_after_seconds is None:
            retry_after_seconds = self.default_retry_after_seconds
        if retry_after_seconds is not None:
            self.headers += ((b"retry-after", str(retry_after_seconds).encode()),)

    def body(self) -> bytes:
        """The answer's JSON body in OpenAI's shape."""
        return orjson.dumps(
            {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}
        )


class InvalidRequest(CallError):
    status = 400
    type = "invalid_request_error"
    anthropic_type = "invalid_request_error"


class Unauthorized(CallError):
    status = 401
    type = "invalid_request_error"
    anthropic_type = "authentication_error"
    default_code = "invalid_api_key"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers=((b"www-authenticate", b"Bearer"),))


class Forbidden(CallError):
    status = 403
    type = "invalid_request_error"
    anthropic_type = "permission_error"
    default_code = "permission_denied"


class RateLimited(CallError):
    status = 429
    type = "rate_limit_error"
    anthropic_type = "rate_limit_error"


class NotFound(CallError):
    status = 404
    type = "invalid_request_error"
    anthropic_type = "not_found_error"
    default_code = "not_found"


class MethodNotAllowed(CallError):
    status = 405
    type = "invalid_request_error"
    anthropic_type = "invalid_request_error"
    default_code = "method_not_allowed"

    def __init__(self, allowed: str) -> None:
        super().__init__(f"This path takes {allowed}.", headers=((b"allow", allowed.encode("ascii")),))


class UpstreamUnavailable(CallError):
    status = 502
    default_code = "upstream_unavailable"
    default_retry_after_seconds = 1


class UpstreamSaturated(CallError):
    status = 503
    anthropic_type = "overloaded_error"
    default_code = "upstream_saturated"
    default_retry_after_seconds = 1


class UpstreamTimeout(CallError):
    status = 504
    type = "timeout_error"
    anthropic_type = "timeout_error"
    default_code = "timeout"


class UpstreamRefusal(CallError):
    """`raw_body` is exactly what the backend sent; `message` is read from it for people."""

    def __init__(self, *, status: int, raw_body: bytes, content_type: bytes) -> None:
        super().__init__(_message_in(raw_body) or f"The model server answered {status}.", status=status)
        self.raw_body = raw_body
        self.content_type = content_type

    def body(self) -> bytes:
        return self.raw_body


def _message_in(body: bytes) -> str:
    """The text inside an error body, whichever of the usual shapes it has."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(document, dict):
        return ""
    error = document.get("error", document)
    text = error.get("message") if isinstance(error, dict) else error
    return text if isinstance(text, str) else ""


def upstream_failure(error: Exception) -> CallError:
    """The transport's failures as ours; each kind of httpx's is listed in a test."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ConnectError):
        return UpstreamUnavailable("The model server cannot be reached.")
    if isinstance(error, httpx.PoolTimeout):
        return UpstreamSaturated("The model server takes no more connections.", retry_after_seconds=1)
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return UpstreamTimeout("The model server was silent for too long.")
    if isinstance(error, EventTooLarge):
        return UpstreamUnavailable("The model server sent an event that is too large.")
    return UpstreamUnavailable(CUT)
