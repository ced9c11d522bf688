"""One call through the relay: however it ends, one record is made, before its end is told, and nothing stays open."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Any

import httpx
import orjson
import pytest

from billing.models import Outcome
from gateway import chat_stream, errors, relay
from gateway.connection import Connection
from gateway.errors import CallError, InvalidRequest, UpstreamRefusal, UpstreamUnavailable
from gateway.relay import Interrupted
from gateway.sse import EventSplitter, event_data
from gateway.transport import Exchange, Transport, WireRequest
from gateway.upstreams import Kind
from tests.fake_upstream import replies
from tests.fake_upstream.replies import chunk, completion, event, hello, usage_chunk
from tests.fake_upstream.server import FakeUpstream
from tests.gateway.loops import until
from tests.gateway.relay_bench import Bench, bench, read_events, read_whole, run

# -- the end and the record --------------------------------------------------------------------------


def test_the_record_is_there_before_done_is(upstream: FakeUpstream) -> None:
    upstream.then(replies.stream(*hello()))

    async def scenario() -> None:
        async with bench(upstream) as made:
            async with made.answer() as answer, aclosing(answer.events()) as events:
                async for data in events:
                    assert bool(made.ledger.finished) is (data == replies.DONE)
            assert made.is_settled(Outcome.OK)
            assert made.ledger.record["completion_tokens"] == 7

    run(scenario)


def test_the_record_is_there_before_an_error_is(upstream: FakeUpstream) -> None:
    upstream.then(replies.cut_stream(event(chunk("Hi"))))

    async def scenario() -> None:
        async with bench(upstream) as made:
            async with made.answer() as answer, aclosing(answer.events()) as events:
                assert await anext(events) == event(chunk("Hi"))
                with pytest.raises(UpstreamUnavailable):
                    await anext(events)
                assert made.ledger.record["outcome"] == "error"
            assert made.is_settled(Outcome.ERROR)

    run(scenario)


def test_a_whole_answer_is_recorded_when_it_is_complete(upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(completion()))

    async def scenario() -> None:
        async with bench(upstream) as made:
            async with made.answer(stream=False) as answer:
                body = await answer.read()
                assert made.ledger.finished == []
                answer.complete(bytes_out=len(body))
                assert made.ledger.record["bytes_out"] == len(body)
            assert made.is_settled(Outcome.OK)

    run(scenario)


# -- every other way to end --------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_is_recorded_once(upstream: FakeUpstream, stream: bool) -> None:
    upstream.then(replies.answer(b"no", status=422))

    async def scenario() -> None:
        async with bench(upstream) as made:
            with pytest.raises(UpstreamRefusal) as caught:
                await made.answer(stream=stream).__aenter__()
            assert caught.value.body() == b"no"
            assert made.is_settled(Outcome.ERROR, status=422)
            assert made.ledger.record["error_code"] == "422"

    run(scenario)


def test_a_request_that_cannot_be_written_is_recorded_as_refused(upstream: FakeUpstream) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]

    async def scenario() -> None:
        async with bench(upstream) as made:
            with pytest.raises(InvalidRequest):
                await made.answer(chat_template_kwargs=deep).__aenter__()
            assert made.is_settled(Outcome.ERROR, status=400)

    run(scenario)
    assert upstream.received == []


@pytest.mark.parametrize("said", [[], [replies.STREAM_HEAD, replies.chunked(event(chunk("Hi")))]])
def test_a_call_cancelled_from_outside_is_recorded_as_interrupted(upstream: FakeUpstream, said: list[bytes]) -> None:
    upstream.then(replies.silence_after(*said))

    async def scenario() -> None:
        async with bench(upstream) as made:
            answer = made.answer()
            task = asyncio.create_task(read_events(answer))
            await until(lambda: answer.call.first_byte_at if said else upstream.received)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert made.is_settled(Outcome.INTERRUPTED, status=200 if said else 500)
            await until(lambda: upstream.hangups)

    run(scenario)


def test_a_reader_that_breaks_off_is_recorded_as_interrupted(upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(event(chunk("Hi")))))

    async def scenario() -> None:
        async with bench(upstream) as made:
            async with made.answer() as answer, aclosing(answer.events()) as events:
                await anext(events)
            assert made.is_settled(Outcome.INTERRUPTED)
            await until(lambda: upstream.hangups)

    run(scenario)


def test_a_fault_of_our_own_is_recorded_as_an_error(upstream: FakeUpstream) -> None:
    upstream.then(replies.stream(*hello()))

    async def scenario() -> None:
        async with bench(upstream) as made:
            with pytest.raises(ZeroDivisionError):
                async with made.answer():
                    raise ZeroDivisionError
            assert made.is_settled(Outcome.ERROR)

    run(scenario)


@pytest.mark.parametrize(("kind", "drain"), [(Kind.VLLM, True), (Kind.SGLANG, True), (Kind.OPENAI, False)])
def test_a_client_that_leaves_ends_the_call_where_it_may(upstream: FakeUpstream, kind: Kind, drain: bool) -> None:
    said = event(chunk("Hi", usage={"prompt_tokens": 3, "completion_tokens": 1}))
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(said)))

    async def scenario() -> None:
        async with bench(upstream, kind=kind, drain=drain) as made:
            answer = made.answer()
            reading = asyncio.create_task(read_events(answer))
            await until(lambda: answer.call.first_byte_at)
            answer.client_left()
            answer.client_left()
            assert [orjson.loads(event_data(data)) for data in await reading] == [chunk("Hi")]
            assert made.is_settled(Outcome.CLIENT_GONE)
            assert (made.ledger.record["prompt_tokens"], made.ledger.record["completion_tokens"]) == (3, 1)
            assert not made.ledger.record["estimated"]
            await until(lambda: upstream.hangups)

    run(scenario)


def test_a_client_that_leaves_elsewhere_lets_the_call_go_on(upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, hello()[:1], [*hello()[1:], replies.DONE]))

    async def scenario() -> None:
        async with bench(upstream) as made:
            answer = made.answer()
            reading = asyncio.create_task(read_events(answer))
            await until(gate.reached.is_set)
            answer.client_left()
            assert answer.client_is_gone
            gate.open()
            # Nobody is told that it is done.
            assert replies.DONE not in await reading
            assert made.is_settled(Outcome.CLIENT_GONE)
            assert made.ledger.record["completion_tokens"] == 7

    run(scenario)


def test_a_client_that_leaves_an_engine_before_its_answer_ends_the_call(upstream: FakeUpstream) -> None:
    upstream.then(replies.silence_after())

    async def scenario() -> None:
        async with bench(upstream, kind=Kind.VLLM) as made:
            answer = made.answer()
            opening = asyncio.create_task(answer.__aenter__())
            await until(lambda: upstream.received)
            answer.client_left()
            with pytest.raises(Interrupted):
                await opening
            assert made.is_settled(Outcome.CLIENT_GONE, status=499)
            await until(lambda: upstream.hangups)

    run(scenario)


def test_leaving_after_the_end_changes_nothing(upstream: FakeUpstream) -> None:
    upstream.then(replies.stream(*hello()))

    async def scenario() -> None:
        async with bench(upstream) as made:
            answer = made.answer()
            await read_events(answer)
            answer.client_left()
            answer.stop()
            assert made.is_settled(Outcome.OK)

    run(scenario)


@pytest.mark.parametrize("kind", [Kind.OPENAI, Kind.VLLM])
def test_stopping_ends_the_upstream_call_whatever_its_kind(upstream: FakeUpstream, kind: Kind) -> None:
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(event(chunk("Hi")))))

    async def scenario() -> None:
        async with bench(upstream, kind=kind) as made:
            async with made.answer() as answer:
                chunks = answer.chunks()
                assert await anext(chunks) == chunk("Hi")
                rest = asyncio.create_task(anext(chunks, None))
                await until(lambda: answer._task)
                answer.stop()
                assert await rest is None
            assert made.is_settled(Outcome.STOPPED)
            await until(lambda: upstream.hangups)

    run(scenario)


def test_stopping_between_two_chunks_ends_the_iteration(upstream: FakeUpstream) -> None:
    upstream.then(replies.stream(event(chunk("a")), event(chunk("b")), *hello()))

    async def scenario() -> None:
        async with bench(upstream) as made:
            found = []
            async with made.answer() as answer:
                async for document in answer:
                    found.append(document)
                    answer.stop()
            assert found[0] == chunk("a")
            assert made.is_settled(Outcome.STOPPED)

    run(scenario)


def test_stopping_a_call_before_it_is_opened_asks_nobody(upstream: FakeUpstream) -> None:
    async def scenario() -> None:
        async with bench(upstream) as made:
            answer = made.answer()
            answer.stop()
            with pytest.raises(Interrupted):
                await answer.__aenter__()
            assert made.is_settled(Outcome.STOPPED, status=499)

    run(scenario)
    assert upstream.received == []


def test_stopped_and_cancelled_at_once_is_cancelled(upstream: FakeUpstream) -> None:
    """Whoever cancels the task from outside must see it end so, whatever else ended it."""
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(event(chunk("Hi")))))

    async def scenario() -> None:
        async with bench(upstream) as made:
            answer = made.answer()
            task = asyncio.create_task(read_events(answer))
            await until(lambda: answer.call.first_byte_at)
            answer.stop()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert made.is_settled(Outcome.STOPPED)

    run(scenario)


# -- in process --------------------------------------------------------------------------------------


def test_chunks_are_the_stream_as_objects(upstream: FakeUpstream) -> None:
    thought = chunk(choices=[{"index": 0, "delta": {"reasoning_content": "Hmm"}}])
    upstream.then(replies.stream(b": hi\n\n", event(thought), *hello()))

    async def scenario() -> None:
        async with bench(upstream) as made, made.answer(stream_options={"include_usage": True}) as answer:
            assert [document async for document in answer] == [
                chunk(choices=[{"index": 0, "delta": {"reasoning": "Hmm"}}]), chunk("Hel"), chunk("lo"),
                chunk(finish_reason="stop"), usage_chunk(),
            ]  # fmt: skip
            assert str(answer.request_id).replace("-", "") == made.ledger.record["id"]

    run(scenario)


# -- what httpx may raise ----------------------------------------------------------------------------

UNREACHABLE = (502, "upstream_unavailable", "The model server cannot be reached.")
BROKEN = (502, "upstream_unavailable", errors.CUT)
SILENT = (504, "timeout", "The model server was silent for too long.")
FULL = (503, "upstream_saturated", "The model server takes no more connections.")
TRANSLATIONS: dict[type[httpx.HTTPError], tuple[int, str, str]] = {
    httpx.ConnectError: UNREACHABLE,
    httpx.ConnectTimeout: UNREACHABLE,
    httpx.PoolTimeout: FULL,
    httpx.ReadTimeout: SILENT,
    httpx.WriteTimeout: SILENT,
    httpx.TimeoutException: SILENT,
    httpx.HTTPError: BROKEN,
    httpx.RequestError: BROKEN,
    httpx.TransportError: BROKEN,
    httpx.NetworkError: BROKEN,
    httpx.ReadError: BROKEN,
    httpx.WriteError: BROKEN,
    httpx.CloseError: BROKEN,
    httpx.ProtocolError: BROKEN,
    httpx.LocalProtocolError: BROKEN,
    httpx.RemoteProtocolError: BROKEN,
    httpx.ProxyError: BROKEN,
    httpx.UnsupportedProtocol: BROKEN,
    httpx.DecodingError: BROKEN,
    httpx.TooManyRedirects: BROKEN,
}
# Raised by httpx's client and response, which the relay does not use, or when an address is read, at the start.
NOT_FROM_A_TRANSPORT = {
    httpx.HTTPStatusError, httpx.InvalidURL, httpx.CookieConflict, httpx.StreamError, httpx.StreamConsumed,
    httpx.StreamClosed, httpx.ResponseNotRead, httpx.RequestNotRead,
}  # fmt: skip


def test_each_exception_of_httpx_is_accounted_for() -> None:
    kinds = {kind for kind in vars(httpx).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert kinds == set(TRANSLATIONS) | NOT_FROM_A_TRANSPORT


class Fails(Transport):
    """Fails when asked, or after the first bytes of its answer."""

    def __init__(self, error: Exception, *, after: bytes = b"") -> None:
        super().__init__()
        self._error = error
        self._after = after

    async def ask(self, request: WireRequest) -> Exchange:
        if not self._after:
            raise self._error
        connection = Connection(asyncio.get_running_loop())
        connection.status = 200
        connection._keep(self._after)
        connection.error = self._error
        return Exchange(self, request.origin, connection, request.read_seconds)


def seen(error: CallError) -> tuple[int, str | None, str]:
    return error.status, error.code, error.message


@pytest.mark.parametrize(("kind", "translated"), TRANSLATIONS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_each_exception_becomes_an_error_for_the_client(
    kind: type[httpx.HTTPError], translated: tuple[int, str, str]
) -> None:
    async def failing(*, stream: bool, after: bytes) -> None:
        transport = Fails(kind("secret details"), after=after)
        made = Bench("http://127.0.0.1:9/v1", transport, kind=Kind.OPENAI, drain=True, replicas=1)
        answer = made.answer(stream=stream)
        with pytest.raises(CallError) as caught:
            await (read_events(answer) if stream else read_whole(answer))
        assert seen(caught.value) == translated
        assert made.is_settled(Outcome.ERROR, status=200 if stream and after else translated[0])
        assert made.ledger.record["error_code"] == translated[1]

    async def scenario() -> None:
        for stream in (True, False):
            for after in (b"", event(chunk("Hi"))):
                await failing(stream=stream, after=after)

    run(scenario)


# -- limits ------------------------------------------------------------------------------------------


def test_an_event_beyond_the_limit_is_an_error(upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_stream, "EventSplitter", partial(EventSplitter, max_event_bytes=1000))
    upstream.then(replies.silence_after(replies.STREAM_HEAD, replies.chunked(b"data: " + b"x" * 2000)))

    async def scenario() -> None:
        async with bench(upstream) as made:
            with pytest.raises(UpstreamUnavailable, match="too large"):
                await read_events(made.answer())
            assert made.is_settled(Outcome.ERROR)
            await until(lambda: upstream.hangups)

    run(scenario)


def test_a_whole_answer_beyond_the_limit_is_an_error(upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_ANSWER_BYTES", 1000)
    upstream.then(replies.silence_after(replies.head(content_length="5000") + b"x" * 2000))

    async def scenario() -> None:
        async with bench(upstream) as made:
            with pytest.raises(UpstreamUnavailable, match="too large"):
                await read_whole(made.answer(stream=False))
            assert made.is_settled(Outcome.ERROR, status=502)
            await until(lambda: upstream.hangups)

    run(scenario)


# -- replicas ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "first", [replies.hang_up_at_once(), replies.answer(b"busy", status=503), replies.answer(b"", status=502)]
)
def test_another_replica_is_asked_before_the_first_byte_and_one_record_made(
    upstream: FakeUpstream, stream: bool, first: Any
) -> None:
    upstream.then(first, replies.stream(*hello()) if stream else replies.answer(completion()))

    async def scenario() -> None:
        async with bench(upstream, replicas=2) as made:
            async with made.answer(stream=stream) as answer:
                if stream:
                    assert [data async for data in answer.events()][-1] == replies.DONE
                else:
                    answer.complete(bytes_out=len(await answer.read()))
            assert made.is_settled(Outcome.OK)
            assert made.ledger.record["upstream"] == "server 2"

    run(scenario)
    assert len(upstream.received) == 2


def test_when_all_replicas_fail_the_last_ones_word_is_passed_on(upstream: FakeUpstream) -> None:
    upstream.then(replies.hang_up_at_once(), replies.answer(b"busy", status=503, retry_after="9"))

    async def scenario() -> None:
        async with bench(upstream, replicas=2) as made:
            with pytest.raises(UpstreamRefusal) as caught:
                await made.answer().__aenter__()
            assert (caught.value.status, caught.value.body()) == (503, b"busy")
            assert (b"retry-after", b"9") in caught.value.headers
            assert made.is_settled(Outcome.ERROR, status=503)

    run(scenario)


@pytest.mark.parametrize("reply", [replies.answer(b"no", status=500), replies.answer(b"no", status=429)])
def test_other_refusals_are_the_only_answer(upstream: FakeUpstream, reply: Any) -> None:
    upstream.then(reply)

    async def scenario() -> None:
        async with bench(upstream, replicas=2) as made:
            with pytest.raises(UpstreamRefusal):
                await made.answer().__aenter__()

    run(scenario)
    assert len(upstream.received) == 1
