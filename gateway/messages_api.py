"""`POST /v1/messages` and `/v1/messages/count_tokens`: the chat relay, spoken to in Anthropic's way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import orjson

from gateway import lenient_json
from gateway.admission import Ask, check_scope
from gateway.anthropic import parse_messages_request
from gateway.anthropic_answer import error_body, estimated_input_tokens, message_from
from gateway.anthropic_stream import PING, MessageStream
from gateway.caller import Caller
from gateway.chat import STREAM_HEADERS, StreamClient, answer_headers, watch_client
from gateway.chat_stream import Chunks, Write, rewrite_completion
from gateway.company import step_done
from gateway.errors import CallError, UpstreamUnavailable
from gateway.http import JSON, Headers, Receive, Send, read_body, send_answer
from gateway.relay import Answer, Interrupted
from gateway.schema import ChatRequest, parse_json_object

if TYPE_CHECKING:
    from gateway.app import Request

# The name of the endpoint in records and in the scopes of keys.
CALLED = "messages"


async def serve(request: Request) -> None:
    def parse(raw: bytes, caller: Caller) -> ChatRequest:
        messages = parse_messages_request(parse_json_object(raw))
        chat = request.runtime.parse_chat(messages.chat, caller=caller, portable=request.wants_portable())
        chat.dropped = sorted({*chat.dropped, *messages.dropped})
        return chat

    chat, answer, ticket = await request.begin_chat(parse, called=CALLED)
    headers = [*answer_headers(answer.call, chat, ticket), (b"request-id", answer.call.request_id.encode("ascii"))]
    if chat.stream:
        await _serve_stream(answer, headers, request.receive, request.send)
    else:
        await _serve_whole(answer, headers, request.send)


async def count_tokens(request: Request) -> None:
    """An estimate. It counts as a request and costs nothing."""
    caller = await request.caller()
    document = parse_json_object(await read_body(request.headers, request.receive))
    messages = parse_messages_request(document, counting=True)
    chat = request.runtime.parse_chat(messages.chat, caller=caller, portable=request.wants_portable())
    check_scope(caller.allowance, Ask(endpoint=CALLED, model=chat.model, address=request.address))
    await request.count(caller, endpoint=CALLED)
    body = orjson.dumps({"input_tokens": estimated_input_tokens(messages.chat)})
    headers = [JSON, *_ids(request.request_id), *request.limits]
    await send_answer(request.send, status=200, headers=headers, body=body)


async def send_error(send: Send, error: CallError, *, request_id: bytes) -> None:
    headers = [JSON, *_ids(request_id), *error.headers]
    body = error_body(error, request_id=request_id.decode("ascii"))
    await send_answer(send, status=error.status, headers=headers, body=body)


def _ids(request_id: bytes) -> Headers:
    # Anthropic's clients look for the second name.
    return [(b"x-request-id", request_id), (b"request-id", request_id)]


async def _serve_whole(answer: Answer, headers: Headers, send: Send) -> None:
    call = answer.call
    async with answer:
        try:
            completion = orjson.loads(rewrite_completion(call, await answer.read()))
            body = lenient_json.dumps(message_from(completion, request_id=call.request_id, model=call.model))
        except ValueError:
            raise UpstreamUnavailable("The model server's answer was no chat completion.") from None
        answer.complete(bytes_out=len(body), alone=False)
    await step_done()
    call.written()
    await send_answer(send, status=200, headers=[JSON, *headers], body=body)


async def _serve_stream(answer: Answer, headers: Headers, receive: Receive, send: Send) -> None:
    watcher = asyncio.ensure_future(watch_client(answer, receive))
    try:
        async with answer:
            client = StreamClient(send, answer, keep_alive=PING)
            await client.start([*STREAM_HEADERS, *headers])
            stream = MessageStream(request_id=answer.call.request_id, model=answer.call.model)
            last = b""
            try:
                await answer.pump(_translated(stream, client.write))
                # The record is in the journal: the chunks have ended.
                last = stream.end()
            except CallError as error:
                last = stream.error(error)
            finally:
                client.stop()
            await client.end(last)
    except Interrupted:
        pass
    finally:
        watcher.cancel()


def _translated(stream: MessageStream, write: Write) -> Write:
    """`write` for whole events of a chat stream."""
    chunks = Chunks()

    def feed(data: bytes) -> Awaitable[None] | None:
        events = b"".join([stream.feed(chunk) for chunk in chunks.feed(data)])
        return write(events) if events else None

    return feed
