"""`/spaces/{endpoint}/v1/…`: a team's own server, as if it were called directly.

Method, path, query and body pass byte for byte in both directions, of any length and kind, with bounded memory. Only
what belongs to one hop changes: framing, the credential, and headers that would speak for this site's origin.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
from django.conf import settings

from billing.models import Outcome, Source
from gateway.admission import Ask, check_scope
from gateway.call import Call, RecordLog
from gateway.endpoints import EndpointBook, Epoch, Target
from gateway.errors import CallError, Forbidden, NotFound, UpstreamTimeout, UpstreamUnavailable
from gateway.guarded_transport import GuardedTransport
from gateway.http import ClientGone, Headers, Receive, Scope, Send
from gateway.passing_usage import PassingUsage, model_in
from gateway.reachable import AddressRefused

if TYPE_CHECKING:
    from gateway.app import Request

PREFIX = b"/spaces/"
CLIENT_GONE_STATUS = 499
CONNECT_SECONDS = 5.0
RETRY_AFTER_SECONDS = 5
# A body of known length up to this is taken whole; longer ones, and those without a length, are passed on in pieces.
WHOLE_BODY_BYTES = 262_144
HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
        b"expect", b"proxy-authenticate", b"proxy-authorization",
    }
)  # fmt: skip
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"x-csrftoken"})
# Headers of an answer that would speak for this site: its cookies, its transport, who may read across origins.
OF_THE_SITE = frozenset(
    {
        b"date", b"server", b"x-request-id", b"set-cookie", b"set-cookie2", b"clear-site-data", b"alt-svc",
        b"strict-transport-security", b"public-key-pins", b"service-worker-allowed", b"report-to", b"nel",
        b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-allow-headers",
        b"access-control-allow-methods", b"access-control-expose-headers", b"access-control-max-age",
    }
)  # fmt: skip
# A page from a team's server must not act as a page of this site.
FENCE: Headers = [(b"content-security-policy", b"sandbox; default-src 'none'"), (b"x-content-type-options", b"nosniff")]
COOKIES = (settings.SESSION_COOKIE_NAME.encode("ascii"), settings.CSRF_COOKIE_NAME.encode("ascii"))
# Names this installation in Via, by which a request that comes round again is known.
VIA = b"1.1 tf-" + hashlib.sha256(b"via:" + settings.SECRET_KEY.encode()).hexdigest()[:12].encode("ascii")


class Spaces:
    """What a web process holds for dedicated endpoints."""

    def __init__(
        self, *, epoch: Epoch, transport: GuardedTransport, log: RecordLog, read_timeout_seconds: float
    ) -> None:
        self.book = EndpointBook(epoch)
        self.transport = transport
        self.log = log
        self.read_timeout_seconds = read_timeout_seconds

    async def aclose(self) -> None:
        await self.transport.aclose()


async def serve(request: Request) -> None:
    """Raises CallError before the first byte; after it an answer that breaks off is cut, as it came."""
    slug, rest = _split(request.scope)
    caller = await request.caller()
    check_scope(caller.allowance, Ask(endpoint="spaces", address=request.address))
    spaces = request.runtime.spaces
    target = await spaces.book.find(slug)
    if target is None:
        raise NotFound(f"There is no endpoint {slug}.")
    if target.team_id != caller.team_id:
        raise Forbidden(f"The endpoint {slug} belongs to another team.")
    if target.fault:
        raise UpstreamUnavailable(target.fault, status=503)
    if any(name == b"via" and VIA in value for name, value in request.scope["headers"]):
        raise CallError("The endpoint leads back to this gateway.", status=508, code="loop_detected")
    call = Call(
        caller=replace(caller, source=Source.DEDICATED),
        model=slug,
        endpoint=f"spaces/{slug}",
        stream=False,
        log=spaces.log,
    )
    call.upstream = slug
    call.accept()
    request.belongs_to(call.request_id)
    await Passage(spaces, target, call, request.scope, request.receive, request.send).run(rest)


def _split(scope: Scope) -> tuple[str, bytes]:
    """The endpoint's name, and what follows its `/v1` as it was sent. Steps upward lead nowhere."""
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    _, _, slug, version, *rest = [*raw_path.split(b"/", 4), b"", b"", b""][:5]
    segments = scope["path"].replace("\\", "/").split("/")
    if version != b"v1" or ".." in segments or "." in segments:
        raise NotFound("Unknown path. Dedicated endpoints are at /spaces/{endpoint}/v1/…")
    return slug.decode("ascii", "replace")[:64], b"/" + rest[0]


class Passage:
    """One request on its way through and its answer on the way back."""

    def __init__(self, spaces: Spaces, target: Target, call: Call, scope: Scope, receive: Receive, send: Send) -> None:
        self.spaces = spaces
        self.target = target
        self.call = call
        self.scope = scope
        self.send = send
        self.body = ClientBody(receive)
        self.meter = PassingUsage()
        self.asked_for = ""
        self.started = False

    async def run(self, rest: bytes) -> None:
        """Until the answer has ended or the client has left, whichever is first; the record is made in any case."""
        passing = asyncio.ensure_future(self._pass(rest))
        leaving = asyncio.ensure_future(self.body.until_client_leaves())
        try:
            await asyncio.wait({passing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not passing.done():
                self._finish(Outcome.CLIENT_GONE)
                raise ClientGone
            passing.result()
        except (httpx.HTTPError, AddressRefused) as error:
            failure = _translated(error, self.target)
            self._fail(failure)
            if not self.started:
                raise failure from error
        except CallError as error:
            self._fail(error)
            raise
        except ClientGone:
            self._finish(Outcome.CLIENT_GONE)
            raise
        finally:
            leaving.cancel()
            passing.cancel()
            await asyncio.gather(passing, leaving, return_exceptions=True)
            self._finish(Outcome.INTERRUPTED)

    async def _pass(self, rest: bytes) -> None:
        response = await self._ask(rest)
        try:
            await self._answer(response)
        finally:
            await response.stream.aclose()  # type: ignore[union-attr]

    async def _ask(self, rest: bytes) -> httpx.Response:
        target, length = self.target, _content_length(self.scope)
        path = target.url.raw_path.rstrip(b"/") + rest
        query: bytes = self.scope["query_string"]
        timeout = {"connect": CONNECT_SECONDS, "read": self.spaces.read_timeout_seconds}
        request = httpx.Request(
            self.scope["method"],
            target.url,
            headers=_request_headers(self.scope, target),
            stream=httpx.ByteStream(b""),
            extensions={"timeout": timeout, "target": path + (b"?" + query if query else b"")},
        )
        first = await self.body.first(whole=length is not None and length <= WHOLE_BODY_BYTES)
        if length is None and self.body.ended and first:
            length = len(first)
        if length is not None:
            request.headers["content-length"] = str(length)
        self.call.prompt_bytes = length or len(first)
        self.asked_for = model_in(first)
        if not self.body.ended:
            return await self.spaces.transport.upload(request, self.body.pieces(first))
        request.stream = httpx.ByteStream(first)
        return await self.spaces.transport.handle_async_request(request)

    async def _answer(self, response: httpx.Response) -> None:
        call, headers = self.call, response.headers.raw
        call.status = response.status_code
        call.stream = any(n == b"content-type" and v.lower().startswith(b"text/event-stream") for n, v in headers)
        left = next((int(v) for n, v in headers if n == b"content-length" and v.isdigit()), None)
        own: Headers = [*FENCE, (b"x-request-id", call.request_id.encode("ascii"))]
        if call.stream:
            own.append((b"x-accel-buffering", b"no"))
        self.started = True
        passed = [*_kept(headers, OF_THE_SITE), *own]
        await self.send({"type": "http.response.start", "status": response.status_code, "headers": passed})
        async for piece in response.stream:  # type: ignore[union-attr]
            call.first_byte_at = call.first_byte_at or time.time()
            call.bytes_out += len(piece)
            self.meter.feed(piece)
            left = None if left is None else left - len(piece)
            if left == 0 or (call.stream and b"[DONE]" in piece):
                # What the client takes for the end leaves only after the record is safe.
                self._finish(Outcome.OK)
            await self.send({"type": "http.response.body", "body": piece, "more_body": True})
        self._finish(Outcome.OK)
        await self.send({"type": "http.response.body", "body": b""})

    def _fail(self, error: CallError) -> None:
        if not self.call.finished:
            self.call.error_code = error.code or str(error.status)
            self.call.status = self.call.status if self.started else error.status
            self._finish(Outcome.ERROR)

    def _finish(self, outcome: Outcome) -> None:
        call, meter = self.call, self.meter
        if call.finished:
            return
        call.status = call.status or (500 if outcome is Outcome.INTERRUPTED else CLIENT_GONE_STATUS)
        call.turned_out(model=meter.model or self.asked_for or self.target.slug)
        call.usage = meter.usage
        call.output_chunks = meter.events if call.stream else 0
        call.finish(outcome)


class ClientBody:
    """The client's side of a connection: a body in pieces, then the news that it has left."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = asyncio.Event()
        self._gone = False

    @property
    def ended(self) -> bool:
        return self._read.is_set()

    async def first(self, *, whole: bool) -> bytes:
        """The whole body, or its first piece. Raises ClientGone."""
        found = [await self._piece()]
        while whole and not self.ended:
            found.append(await self._piece())
        return b"".join(found)

    async def pieces(self, first: bytes) -> AsyncIterator[bytes]:
        """The rest of the body after `first`, each piece when it has come. Raises ClientGone."""
        piece = first
        while True:
            if piece:
                yield piece
            if self.ended:
                return
            piece = await self._piece()

    async def until_client_leaves(self) -> None:
        await self._read.wait()
        while not self._gone:
            self._gone = (await self._receive())["type"] == "http.disconnect"

    async def _piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone = True
            self._read.set()
            raise ClientGone
        if not message.get("more_body"):
            self._read.set()
        body: bytes = message.get("body", b"")
        return body


# -- headers -------------------------------------------------------------------------------------


def _request_headers(scope: Scope, target: Target) -> Headers:
    headers = [(b"host", target.url.netloc)]
    via = []
    for name, value in _kept(scope["headers"], CREDENTIALS | {b"host", b"content-length"}):
        if name == b"via":
            via.append(value)
        elif name != b"cookie":
            headers.append((name, value))
        elif cookies := _foreign_cookies(value):
            headers.append((name, cookies))
    if target.api_key:
        headers.append((b"authorization", b"Bearer " + target.api_key.encode()))
    headers.append((b"via", b", ".join([*via, VIA])))
    return headers


def _kept(headers: Headers, dropped: frozenset[bytes]) -> Headers:
    """Without `dropped` and what belongs to this hop alone, named in Connection or known to."""
    named = {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
    return [(name, value) for name, value in headers if name not in HOP_BY_HOP | dropped | named]


def _foreign_cookies(value: bytes) -> bytes:
    """Without this site's own, which are credentials."""
    cookies = [cookie.strip() for cookie in value.split(b";")]
    return b"; ".join(cookie for cookie in cookies if cookie.partition(b"=")[0].strip() not in COOKIES)


def _content_length(scope: Scope) -> int | None:
    """What the client declared; the server's parser has refused what is no number, and a length beside chunks."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return None


def _translated(error: Exception, target: Target) -> CallError:
    if isinstance(error, AddressRefused):
        return UpstreamUnavailable(f"The endpoint {target.slug} cannot be used: {error}.", status=503)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        text = f"The endpoint {target.slug} cannot be reached at the moment."
        return UpstreamUnavailable(text, status=503, retry_after_seconds=RETRY_AFTER_SECONDS)
    if isinstance(error, httpx.TimeoutException):
        return UpstreamTimeout(f"The endpoint {target.slug} was silent for too long.")
    return UpstreamUnavailable(f"The endpoint {target.slug} broke off its answer.")
