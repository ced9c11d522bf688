"""The gateway's ASGI application: `/v1/…` and `/api/v1/…`, reached before Django's handler.

Nothing but JSON and event streams ever comes from here, and every answer carries an `x-request-id`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

import orjson
from django.conf import settings

from gateway.call import new_request_id
from gateway.caller import Caller
from gateway.chat import serve_stream, serve_whole
from gateway.credentials import NO_CREDENTIAL, authenticate_session, presented
from gateway.errors import CallError, MethodNotAllowed, NotFound, Unauthorized
from gateway.http import JSON, ClientGone, Receive, Scope, Send, read_body, send_answer, send_error
from gateway.models_api import model_object, rates_now
from gateway.runtime import Runtime, runtime
from gateway.schema import parse_json_object

log = logging.getLogger("gateway")

PREFIXES = ("/v1/", "/api/v1/")
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
        self.path = scope["path"].partition("/v1/")[2]
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


async def chat_completions(request: Request) -> None:
    caller = await request.caller()
    document = parse_json_object(await read_body(request.scope, request.receive))
    chat = request.runtime.parse_chat(document, caller=caller, portable=request.wants_portable())
    relay = request.runtime.relay
    call = relay.call(chat, caller=caller)
    request.belongs_to(call.request_id)
    if chat.stream:
        await serve_stream(relay, chat, call, request.receive, request.send)
    else:
        await serve_whole(relay, chat, call, request.send)


async def list_models(request: Request) -> None:
    caller = await request.caller()
    rates = await rates_now()
    data = [model_object(model, rates(model.id)) for model in request.runtime.models_for(caller)]
    await _send_json(request, {"object": "list", "data": data})


async def one_model(request: Request) -> None:
    caller = await request.caller()
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
    methods = ROUTES.get(path)
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
