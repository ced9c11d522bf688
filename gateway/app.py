"""The gateway's ASGI application: `/v1/…`, `/api/…` and `/spaces/…`, reached before Django's handler.

Nothing but JSON and event streams ever comes from here, and every answer carries an `x-request-id`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import orjson
from django.conf import settings

from gateway import account_api, spaces
from gateway.admission import Ask, Expected, Ticket
from gateway.call import new_request_id
from gateway.caller import Caller
from gateway.chat import answer_headers, chat_job, expected_of, serve_stream, serve_whole
from gateway.client_address import client_address
from gateway.credentials import NO_CREDENTIAL, authenticate_session, presented
from gateway.errors import CallError, MethodNotAllowed, NotFound, Unauthorized
from gateway.http import JSON, ClientGone, Receive, Scope, Send, read_body, send_answer, send_error
from gateway.models_api import model_object, rates_now
from gateway.relay import Answer, Job
from gateway.runtime import Runtime, runtime
from gateway.schema import parse_json_object

log = logging.getLogger("gateway")

MODELS_PREFIXES = ("/v1/", "/api/v1/")
PREFIXES = ("/v1/", "/api/", "/spaces/")
SESSION_COOKIE = settings.SESSION_COOKIE_NAME.encode("ascii") + b"="

type Handler = Callable[[Request], Awaitable[None]]


class Request:
    """One request to the gateway with what its handler needs."""

    __slots__ = ("_request_id", "path", "receive", "runtime", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.runtime: Runtime = runtime()
        # Behind MODELS_PREFIXES; empty elsewhere.
        self.path = scope["path"].partition("/v1/")[2] if scope["path"].startswith(MODELS_PREFIXES) else ""
        self._request_id = b""

    @property
    def request_id(self) -> bytes:
        """The call's id, which is also its usage record's; one of its own where there is no call."""
        if not self._request_id:
            self.belongs_to(new_request_id())
        return self._request_id

    def belongs_to(self, request_id: str) -> None:
        self._request_id = request_id.encode("ascii")

    def wants_portable(self) -> bool | None:
        """What `x-portable` says; None where it is not sent, and the key decides."""
        for name, value in self.scope["headers"]:
            if name == b"x-portable":
                return value.strip().lower() in (b"1", b"true")
        return None

    async def caller(self) -> Caller:
        credential = presented(self.scope["headers"], session_cookie=SESSION_COOKIE)
        if credential.secret is not None:
            return await self.runtime.keys.authenticate(credential.secret)
        if credential.has_session:
            return await authenticate_session(self.scope)
        raise Unauthorized(NO_CREDENTIAL)

    async def counted_caller(self) -> Caller:
        """The caller of what uses no model and still counts as a request."""
        caller = await self.caller()
        await self.runtime.admission.admit(caller, Ask(endpoint="models", address=self.address))
        return caller

    @property
    def address(self) -> str:
        client = self.scope.get("client")
        return client_address(client[0], self.scope["headers"], trusted=settings.TRUSTED_PROXIES) if client else ""

    async def begin(self, job: Job, *, caller: Caller, expected: Expected) -> tuple[Answer, Ticket]:
        """Through the gates and into the journal; from here on the call's id is the request's."""
        answer, ticket = await self.runtime.begin(job, caller=caller, expected=expected, address=self.address)
        self.belongs_to(answer.call.request_id)
        return answer, ticket


async def chat_completions(request: Request) -> None:
    caller = await request.caller()
    raw = await read_body(request.scope, request.receive)
    chat = request.runtime.parse_chat(parse_json_object(raw), caller=caller, portable=request.wants_portable())
    answer, ticket = await request.begin(chat_job(chat), caller=caller, expected=expected_of(chat, len(raw)))
    headers = answer_headers(answer.call, chat, ticket)
    if chat.stream:
        await serve_stream(answer, headers, request.receive, request.send)
    else:
        await serve_whole(answer, headers, request.send)


async def list_models(request: Request) -> None:
    caller = await request.counted_caller()
    rates = await rates_now()
    data = [model_object(model, rates(model.id)) for model in request.runtime.models_for(caller)]
    await _send_json(request, {"object": "list", "data": data})


async def one_model(request: Request) -> None:
    caller = await request.counted_caller()
    model_id = unquote(request.path.removeprefix("models/"))
    rates = await rates_now()
    for model in request.runtime.models_for(caller):
        if model.id == model_id:
            await _send_json(request, model_object(model, rates(model.id)))
            return
    raise NotFound(f"The model {model_id[:200]} does not exist", param="model")


async def _send_json(request: Request, document: Any) -> None:
    headers = [JSON, (b"x-request-id", request.request_id)]
    await send_answer(request.send, status=200, headers=headers, body=orjson.dumps(document))


ROUTES: dict[str, dict[str, Handler]] = {
    "chat/completions": {"POST": chat_completions},
    "models": {"GET": list_models},
}
MODEL_ROUTE: dict[str, Handler] = {"GET": one_model}


def _route(request: Request) -> Handler:
    path = request.path
    if request.scope["path"].startswith("/spaces/"):
        return spaces.serve
    methods = ROUTES.get(path) if path else account_api.ROUTES.get(request.scope["path"])
    if methods is None and path.startswith("models/") and len(path) > len("models/"):
        methods = MODEL_ROUTE
    if methods is None:
        raise NotFound("Unknown path. The API is described at /docs/.")
    handler = methods.get(request.scope["method"])
    if handler is None:
        raise MethodNotAllowed(", ".join(methods))
    return handler


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serves paths under PREFIXES. What a handler raises becomes the JSON error that clients expect."""
    request = Request(scope, receive, send)
    started = False

    async def sending(message: dict[str, Any]) -> None:
        nonlocal started
        started = True
        await send(message)

    request.send = sending
    try:
        await _route(request)(request)
    except CallError as error:
        await send_error(send, error, request_id=request.request_id)
    except ClientGone:
        pass
    except Exception:
        # The edge of the application: whatever it is, the client gets JSON with the id that the log names.
        log.exception("request %s failed", request.request_id.decode())
        if not started:
            internal = CallError(f"Internal error. Request id: {request.request_id.decode()}")
            await send_error(send, internal, request_id=request.request_id)
