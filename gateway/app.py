"""The gateway's ASGI application: `/v1/…`, `/api/…` and `/spaces/…`, reached before Django's handler.

Nothing but JSON and event streams ever comes from here, and every answer carries an `x-request-id`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any
from urllib.parse import unquote

import orjson
from django.conf import settings
from django.db import InterfaceError, OperationalError

from accounts.client_address import forwarded_address
from gateway import account_api, messages_api, ocr_api, openapi, spaces, speech_api, systemone_api
from gateway.admission import Ask, Expected, Ticket
from gateway.call import new_request_id, timestamp
from gateway.caller import Caller
from gateway.chat import answer_headers, chat_job, expected_of, serve_stream, serve_whole
from gateway.company import COMPANY, step_done
from gateway.credentials import NO_CREDENTIAL, authenticate_session, presented
from gateway.errors import CallError, MethodNotAllowed, NotFound, Unauthorized, UpstreamSaturated
from gateway.gates import StaleKey
from gateway.http import JSON, ClientGone, Headers, Receive, Scope, Send, read_body, send_answer, send_error
from gateway.models_api import model_object, rates_now
from gateway.relay import Answer, Job
from gateway.runtime import Runtime, runtime
from gateway.schema import ChatRequest, parse_json_object

log = logging.getLogger("gateway")

MODELS_PREFIXES = ("/v1/", "/api/v1/")
PREFIXES = ("/v1/", "/api/", "/spaces/")
SESSION_COOKIE = settings.SESSION_COOKIE_NAME.encode("ascii") + b"="

type Handler = Callable[[Request], Awaitable[None]]


class Request:
    """One request to the gateway with what its handler needs."""

    __slots__ = (
        "_request_id", "_send", "answer", "headers", "limits", "model", "path", "receive", "runtime", "scope", "status",
        "who",
    )  # fmt: skip

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        # By name; of one that was sent twice the first.
        self.headers: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.receive = receive
        self._send = send
        self.status = 0
        self.who: Caller | None = None
        self.answer: Answer | None = None
        self.model = ""
        # What an answer that used no model says is left of the caller's limits.
        self.limits: Headers = []
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
        value = self.headers.get(b"x-portable")
        return None if value is None else value.strip().lower() in (b"1", b"true")

    def send(self, message: dict[str, Any]) -> Awaitable[None]:
        """ASGI's send, which remembers the status: 0 until the answer has begun."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        return self._send(message)

    async def tell(self, error: CallError) -> None:
        """An error as the clients of this path expect it."""
        to_anthropic = self.path.partition("/")[0] == messages_api.CALLED
        send = messages_api.send_error if to_anthropic else send_error
        await send(self.send, error, request_id=self.request_id)

    async def caller(self) -> Caller:
        secret = presented(self.headers)
        if secret is not None:
            self.who = await self.runtime.keys.authenticate(secret, address=self.address)
        elif SESSION_COOKIE in self.headers.get(b"cookie", b""):
            self.who = await authenticate_session(self.scope)
        else:
            raise Unauthorized(NO_CREDENTIAL)
        return self.who

    def logged(self, *, seconds: float) -> bytes:
        """The request's line in the log, JSON."""
        who = self.who
        line = {
            "at": timestamp(time.time()),
            "request_id": self.request_id.decode("ascii"),
            "method": self.scope["method"],
            "path": self.scope["path"][:200],
            "status": self.status,
            "ms": int(seconds * 10_000) / 10,
            "team": who.team_id if who else 0,
            "key": who.key_id if who else 0,
            "model": self.model,
        }
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    async def counted_caller(self) -> Caller:
        """The caller of what uses no model and still counts as a request."""
        caller = await self.caller()
        await self.count(caller, endpoint="models")
        return caller

    async def count(self, caller: Caller, *, endpoint: str) -> None:
        """Raises Forbidden, RateLimited."""
        ticket = await self.runtime.admission.admit(caller, Ask(endpoint=endpoint, address=self.address))
        self.limits = ticket.headers()

    @property
    def address(self) -> str:
        client, trusted = self.scope.get("client"), self.runtime.trusted_proxies
        if not client or not trusted:
            return client[0] if client else ""
        forwarded = [value.decode("latin-1") for name, value in self.scope["headers"] if name == b"x-forwarded-for"]
        return forwarded_address(client[0], ",".join(forwarded).split(","), trusted=trusted)

    async def begin_chat(
        self, parse: Callable[[bytes, Caller], ChatRequest], *, called: str = "chat"
    ) -> tuple[ChatRequest, Answer, Ticket]:
        """Authenticate, read and `parse` the body, `begin`.

        A key that this process knows saves a trip to Redis: the gates look at the key epoch in the same step. Until
        then nothing comes of the call, and a refusal is told only once the key is known to hold.
        """
        assumed: tuple[Caller, bytes] | None = None
        if self.runtime.admission.counters.know_epoch and (secret := presented(self.headers)) is not None:
            assumed = self.runtime.keys.assumed(secret)
        caller, epoch = assumed or (await self.caller(), b"")
        self.who = caller
        raw: bytes | None = None
        try:
            raw = await read_body(self.headers, self.receive)
            return await self._begin_chat(raw, parse, called, caller, epoch)
        except (CallError, StaleKey) as failure:
            if not epoch:
                raise
            self.who = None
            confirmed = await self.caller()
            if raw is None or (confirmed is caller and isinstance(failure, CallError)):
                raise
        return await self._begin_chat(raw, parse, called, confirmed, b"")

    async def _begin_chat(
        self, raw: bytes, parse: Callable[[bytes, Caller], ChatRequest], called: str, caller: Caller, epoch: bytes
    ) -> tuple[ChatRequest, Answer, Ticket]:
        await step_done()
        chat = parse(raw, caller)
        await step_done()
        expected = expected_of(chat, len(raw))
        answer, ticket = await self.begin(chat_job(chat, called=called), caller=caller, expected=expected, epoch=epoch)
        return chat, answer, ticket

    async def begin(self, job: Job, *, caller: Caller, expected: Expected, epoch: bytes = b"") -> tuple[Answer, Ticket]:
        """Through the gates and into the journal; from here on the call's id is the request's."""
        answer, ticket = await self.runtime.begin(
            job, caller=caller, expected=expected, address=self.address, epoch=epoch
        )
        self.answer = answer
        self.belongs_to(answer.call.request_id)
        self.model = job.model
        return answer, ticket


async def chat_completions(request: Request) -> None:
    def parse(raw: bytes, caller: Caller) -> ChatRequest:
        document = parse_json_object(raw)
        return request.runtime.parse_chat(document, caller=caller, portable=request.wants_portable())

    chat, answer, ticket = await request.begin_chat(parse)
    headers = answer_headers(answer.call, chat, ticket)
    await step_done()
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


async def describe(request: Request) -> None:
    """For everybody: it says nothing that the documentation does not."""
    headers = [JSON, (b"x-request-id", request.request_id)]
    await send_answer(request.send, status=200, headers=headers, body=_description())


@cache
def _description() -> bytes:
    return orjson.dumps(openapi.document({**ROUTES, "models/{id}": MODEL_ROUTE}, account_api.ROUTES))


async def _send_json(request: Request, document: Any) -> None:
    headers = [JSON, (b"x-request-id", request.request_id), *request.limits]
    await send_answer(request.send, status=200, headers=headers, body=orjson.dumps(document))


ROUTES: dict[str, dict[str, Handler]] = {
    "chat/completions": {"POST": chat_completions},
    "messages": {"POST": messages_api.serve},
    "messages/count_tokens": {"POST": messages_api.count_tokens},
    "ocr": {"POST": ocr_api.serve},
    "audio/speech": {"POST": speech_api.serve},
    "systemone": {"POST": systemone_api.serve},
    "models": {"GET": list_models},
    "openapi.json": {"GET": describe},
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
        raise NotFound("Unknown path. The API is described at /v1/openapi.json.")
    handler = methods.get(request.scope["method"])
    if handler is None:
        raise MethodNotAllowed(", ".join(methods))
    return handler


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Serves paths under PREFIXES. What a handler raises becomes the JSON error that clients expect."""
    request = Request(scope, receive, send)
    began = time.perf_counter()
    COMPANY.requests += 1
    try:
        await step_done()
        await _route(request)(request)
    except CallError as error:
        await request.tell(error)
    except ClientGone:
        pass
    except (InterfaceError, OperationalError) as error:
        log.warning("request %s: the database does not answer (%s)", request.request_id.decode(), type(error).__name__)
        if not request.status:
            away = UpstreamSaturated("The database cannot be reached at the moment.")
            await request.tell(away)
    except Exception:
        # The edge of the application: whatever it is, the client gets JSON with the id that the log names.
        log.exception("request %s failed", request.request_id.decode())
        if not request.status:
            internal = CallError(f"Internal error. Request id: {request.request_id.decode()}")
            await request.tell(internal)
    finally:
        COMPANY.requests -= 1
        if request.answer is not None and not request.answer.call.finished:
            # The handler failed between the gates and the backend: no call may stay open for that.
            request.answer.abandon()
        if request_log := request.runtime.request_log:
            request_log.write(request.logged(seconds=time.perf_counter() - began))
