"""The test button: whether a server answers `/models`, and with what. Its answer is looked at, never shown raw."""

from __future__ import annotations

import asyncio

import httpx
import orjson
from django.conf import settings
from django.utils.translation import gettext

from gateway.endpoints import Target
from gateway.guarded_transport import GuardedTransport
from gateway.reachable import AddressRefused

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 1024 * 1024
MAX_SHOWN = 20


class ProbeFailed(Exception):
    """The text is for the person who pressed the button."""


async def probe(target: Target) -> list[str]:
    """The ids of the models that the server lists, the first of them."""
    if target.fault:
        raise ProbeFailed(target.fault)
    transport = GuardedTransport(allowed=settings.DEDICATED_ALLOW)
    try:
        async with asyncio.timeout(2 * TIMEOUT_SECONDS):
            status, body = await _get(transport, target)
    except AddressRefused as error:
        raise ProbeFailed(gettext("No endpoint may stand at %(address)s.") % {"address": error.address}) from None
    except (httpx.TimeoutException, TimeoutError):
        raise ProbeFailed(gettext("The server did not answer in time.")) from None
    except httpx.HTTPError:
        raise ProbeFailed(gettext("The server cannot be reached.")) from None
    finally:
        await transport.aclose()
    if status in (401, 403):
        raise ProbeFailed(gettext("The server refuses the key (status %(status)s).") % {"status": status})
    if status != 200:
        raise ProbeFailed(gettext("The server answered /models with status %(status)s.") % {"status": status})
    return _model_ids(body)


async def _get(transport: GuardedTransport, target: Target) -> tuple[int, bytes]:
    headers = [(b"host", target.url.netloc), (b"accept", b"application/json")]
    if target.api_key:
        headers.append((b"authorization", b"Bearer " + target.api_key.encode()))
    request = httpx.Request(
        "GET",
        target.url.copy_with(path=f"{target.url.path.rstrip('/')}/models"),
        headers=headers,
        extensions={"timeout": {"connect": TIMEOUT_SECONDS, "read": TIMEOUT_SECONDS}},
    )
    response = await transport.handle_async_request(request)
    body = b""
    try:
        async for piece in response.stream:  # type: ignore[union-attr]
            body += piece
            if len(body) > MAX_BYTES:
                break
    finally:
        await response.stream.aclose()  # type: ignore[union-attr]
    return response.status_code, body


def _model_ids(body: bytes) -> list[str]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    entries = document.get("data") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ProbeFailed(
            gettext("The server answers, but its /models is no list of models. Does the address end in /v1?")
        )
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    return [id[:200] for id in ids if isinstance(id, str)][:MAX_SHOWN]
