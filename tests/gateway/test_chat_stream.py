"""A chat stream on its way through: untouched where it can be, renamed and stripped where it must be."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.call import Call
from gateway.chat_stream import ChatStream, rewrite_completion
from gateway.sse import EventSplitter, event_data
from tests.fake_upstream.replies import DONE, MODEL, USAGE, chunk, completion, event, hello, usage_chunk
from tests.gateway.ledger import new_call

KEEP_ALIVE = b": keep-alive\n\n"


def new_stream(*, renames_model: bool = False, include_usage: bool = False, model: str = MODEL) -> ChatStream:
    return ChatStream(new_call(model=model), renames_model=renames_model, include_usage=include_usage)


def documents(data: bytes) -> list[Any]:
    return [orjson.loads(event_data(event)) for event in EventSplitter().feed(data)]


def as_client_sees(document: dict[str, Any], **options: Any) -> Any:
    (seen,) = documents(new_stream(**options).feed(event(document)))
    return seen


# -- what stays as it is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        event(chunk("line\u2028separated\u2029\x85text 🙂")),
        event(chunk("x" * 100_000)),
        event(chunk(tool_calls=[{"index": 17, "function": {"arguments": '{"error"'}}])),
        event(chunk('say "usage": {"prompt_tokens": 1} and "error" and "reasoning_content" and [DONE]')),
        b"event: delta\nid: 4\ndata: " + orjson.dumps(chunk("Hi")) + b"\n\n",
        b'data: {"choices": [{"delta": {"content": "half a million"}}], but no JSON at all, sadly\n\n',
        KEEP_ALIVE,
        b": " + b"x" * 100 + b"\n\n",
        b"event: ping\n\n",
        b"data: {}\n\n",
    ],
)  # fmt: skip
def test_what_needs_nothing_done_goes_through_byte_for_byte(data: bytes) -> None:
    assert new_stream().feed(data) == data


@given(cut=st.integers(1, 600))
def test_a_cut_anywhere_changes_nothing(cut: int) -> None:
    data = b"".join([event(chunk("é🙂")), KEEP_ALIVE, event(chunk("b")), *hello()])
    whole = new_stream()
    pieces = new_stream()
    assert pieces.feed(data[:cut]) + pieces.feed(data[cut:]) == whole.feed(data)
    assert pieces.call.usage == whole.call.usage == USAGE
    assert pieces.call.output_chunks == whole.call.output_chunks


@given(
    events=st.lists(
        st.sampled_from(
            [
                event(chunk("some text of a usual length")),
                event(chunk("é🙂")),
                event(chunk(finish_reason="stop")),
                event(chunk("thought", reasoning_content="more")),
                event({**chunk("beside text"), "usage": USAGE}),
                event(usage_chunk()),
                KEEP_ALIVE,
                b": " + b"x" * 100 + b"\n\n",
                b"event: delta\ndata: " + orjson.dumps(chunk("Hi")) + b"\n\n",
                b"data: {}\n\n",
                event({"error": {"message": "the server has no memory left for this", "type": "internal_error"}}),
                b"data:" + b" " * 60 + b"[DONE]\n\n",
            ]
        ),
        max_size=8,
    ),
    renames_model=st.booleans(),
)
def test_what_comes_together_is_read_as_if_it_came_alone(events: list[bytes], renames_model: bool) -> None:
    together, alone = (new_stream(renames_model=renames_model, model="theirs") for _ in range(2))
    assert together.feed(b"".join(events)) == b"".join(map(alone.feed, events))
    for name in ("output_chunks", "finish_reason", "usage", "upstream_id"):
        assert getattr(together.call, name) == getattr(alone.call, name), name
    assert (together.done, together.error) == (alone.done, alone.error)


def test_line_ends_of_other_servers_become_plain_ones() -> None:
    data = event(chunk("Hi"))
    assert new_stream().feed(data.replace(b"\n", b"\r\n")) == data


# -- what is changed ---------------------------------------------------------------------------------


def test_thinking_is_called_reasoning() -> None:
    document = chunk(choices=[{"index": 0, "delta": {"reasoning_content": "Hmm"}}])
    assert as_client_sees(document) == chunk(choices=[{"index": 0, "delta": {"reasoning": "Hmm"}}])


@pytest.mark.parametrize(
    ("delta", "seen"),
    [
        ({"reasoning_content": "a", "reasoning": "b"}, {"reasoning": "b"}),
        ({"reasoning_content": "a", "reasoning": None}, {"reasoning": "a"}),
        ({"reasoning_content": None, "content": "c"}, {"reasoning": None, "content": "c"}),
    ],
)
def test_a_server_with_both_names_says_one(delta: dict[str, Any], seen: dict[str, Any]) -> None:
    assert as_client_sees(chunk(choices=[{"index": 0, "delta": delta}]))["choices"][0]["delta"] == seen


def test_the_backends_name_for_the_model_never_shows() -> None:
    assert as_client_sees(chunk("Hi", model="qwen-internal"), renames_model=True) == chunk("Hi")


def test_the_other_lines_of_a_changed_event_stay() -> None:
    data = b"event: delta\nid: 4\ndata: " + orjson.dumps(chunk("Hi", model="internal")) + b"\n\n"
    out = new_stream(renames_model=True).feed(data)
    assert out.startswith(b"event: delta\nid: 4\ndata: ")
    assert orjson.loads(event_data(out)) == chunk("Hi")


def test_usage_beside_text_is_stripped_and_remembered() -> None:
    stream = new_stream(include_usage=True)
    out = stream.feed(
        event(chunk("a", usage={"completion_tokens": 1})) + event(chunk("b", usage={"completion_tokens": 2}))
    )
    assert documents(out) == [chunk("a"), chunk("b")]
    assert stream.call.usage == {"completion_tokens": 2}


@pytest.mark.parametrize("include_usage", [True, False])
def test_the_usage_chunk_is_for_those_who_asked(include_usage: bool) -> None:
    stream = new_stream(include_usage=include_usage)
    assert documents(stream.feed(event(usage_chunk()))) == ([usage_chunk()] if include_usage else [])
    assert stream.call.usage == USAGE


def test_the_last_usage_stands_whatever_came_before() -> None:
    stream = new_stream()
    stream.feed(event(usage_chunk({"prompt_tokens": 5, "completion_tokens": 9})) + event(usage_chunk()))
    stream.feed(event(chunk("more", usage=None)) + event({"choices": [], "x": {"usage": {"completion_tokens": 99}}}))
    assert stream.call.usage == USAGE


def test_what_is_remembered_of_a_stream() -> None:
    stream = new_stream()
    stream.feed(b"".join([*hello(), KEEP_ALIVE]))
    assert (stream.call.upstream_id, stream.call.finish_reason) == ("chatcmpl-1", "stop")
    assert stream.call.output_chunks == 3


def test_chunks_are_counted_whatever_lines_stand_before_their_data() -> None:
    stream = new_stream()
    stream.feed(b"event: delta\ndata: " + orjson.dumps(chunk("Hi")) + b"\n\n")
    assert stream.call.output_chunks == 1


# -- the end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "end", [DONE, b"data:[DONE]\n\n", b"event: end\ndata: [DONE]\n\n", b": " + b"long" * 30 + b"\ndata: [DONE]\r\n\r\n"]
)
def test_done_is_seen_in_any_form_and_held_back(end: bytes) -> None:
    stream = new_stream()
    assert stream.feed(end) == b""
    assert stream.done


def test_a_last_event_without_its_blank_line_counts() -> None:
    stream = new_stream()
    stream.feed(event(usage_chunk({"completion_tokens": 1})) + event(usage_chunk())[:-2])
    assert stream.call.usage == {"completion_tokens": 1}
    assert stream.end() == b""
    assert stream.call.usage == USAGE
    unfinished = new_stream()
    unfinished.feed(b"data: [DONE]")
    assert (unfinished.end(), unfinished.done) == (b"", True)


@pytest.mark.parametrize(
    "rest", [b'data: {"choices": [{"delta": {"con', b"data: [DO", b"dat", b": half a comment", b"data: 4"]
)
def test_half_an_event_is_not_passed_on(rest: bytes) -> None:
    stream = new_stream()
    assert stream.feed(event(chunk("Hi")) + rest) == event(chunk("Hi"))
    assert stream.end() == b""


def test_what_follows_done_is_nobodys() -> None:
    stream = new_stream()
    stream.feed(DONE + event(chunk("late"))[:-2])
    assert stream.end() == b""


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"error": {"message": "out of memory", "code": 500}}, {"message": "out of memory", "code": 500}),
        ({"error": "out of memory"}, "out of memory"),
        ({"error": {}}, {}),
    ],
)
def test_an_error_event_is_kept_from_the_client(document: Any, error: Any) -> None:
    stream = new_stream()
    assert stream.feed(event(document)) == b""
    assert stream.error == error


@pytest.mark.parametrize(
    "document", [chunk("Hi", error=None), usage_chunk(error=None), chunk("Hi", error="beside text")]
)
def test_an_error_field_that_says_nothing_is_no_error(document: Any) -> None:
    stream = new_stream(include_usage=True)
    assert documents(stream.feed(event(document))) == [document]
    assert stream.error is None


@given(
    document=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=4)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["choices", "delta", "message", "usage", "error", "model", "id", "reasoning_content",
                                 "finish_reason", "prompt_tokens"]),
                inner, max_size=6,
            ),
        ),
        max_leaves=25,
    )
)  # fmt: skip
def test_no_json_breaks_a_stream_or_an_answer(document: Any) -> None:
    stream = new_stream(renames_model=True)
    stream.feed(event(document))
    stream.end()
    try:
        rewrite_completion(new_call(), orjson.dumps(document))
    except ValueError:
        assert not isinstance(document, dict)


def test_what_cannot_be_written_again_goes_through_as_it_came() -> None:
    deep = b'{"choices": [], "model": "internal", "x": ' + b"[" * 300 + b"]" * 300 + b"}"
    assert new_stream(renames_model=True).feed(b"data: " + deep + b"\n\n") == b"data: " + deep + b"\n\n"
    assert rewrite_completion(new_call(), deep) == deep


# -- whole answers -----------------------------------------------------------------------------------


def rewritten(document: Any) -> tuple[Any, Call]:
    call = new_call(stream=False)
    return orjson.loads(rewrite_completion(call, orjson.dumps(document))), call


def test_a_whole_answer_that_needs_nothing_is_untouched() -> None:
    body = b' {"model" : "DeepSeek-V4-Flash",\n "choices": [], "x": 1.0, "y": "\\u00e9"}\n'
    assert rewrite_completion(new_call(), body) == body


def test_a_whole_answer_is_renamed() -> None:
    message = {"role": "assistant", "content": "Hi", "reasoning_content": "Hmm"}
    choice = {"index": 0, "message": message, "finish_reason": "length"}
    seen, call = rewritten(completion(model="internal", choices=[choice]))
    assert seen["model"] == MODEL
    assert seen["choices"][0]["message"] == {"role": "assistant", "content": "Hi", "reasoning": "Hmm"}
    assert (call.usage, call.upstream_id, call.finish_reason) == (USAGE, "chatcmpl-1", "length")


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None}, "much"])
def test_a_whole_answer_without_usage_counts_by_its_length(usage: Any) -> None:
    _, call = rewritten(completion("word " * 400, usage=usage))
    assert 500 < call.output_chunks < 700


@pytest.mark.parametrize("body", [b"", b"OK", b"[]", b"<html>", b"null", b'"text"', b"{", b'{"a": nan}'])
def test_what_is_no_object_is_no_answer(body: bytes) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        rewrite_completion(new_call(), body)
