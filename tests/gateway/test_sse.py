"""Events come out of bytes the same however the bytes were cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.sse import EventSplitter, EventTooLarge, data_event, event_data, replace_data

LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
# Characters that Python's str.splitlines would split at, and some of several bytes.
TEXT = st.text(st.sampled_from("ab :\u2028\u2029\x85\x0b\x0c\x1c🙂é"), max_size=12)
LINES = st.one_of(
    TEXT.map(lambda text: f"data: {text}"),
    TEXT.map(lambda text: f": {text}"),
    st.just("event: delta"),
    st.just("id: 7"),
    st.just("data"),
    st.just(""),
)


@st.composite
def byte_streams(draw: st.DrawFn) -> bytes:
    """Lines of all kinds, each with a line end of any kind, blank lines anywhere."""
    lines = draw(st.lists(st.tuples(LINES, LINE_ENDS), max_size=20))
    return "".join(line + end for line, end in lines).encode()


def in_pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


def split(*pieces: bytes) -> list[bytes]:
    splitter = EventSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)]


def events_by_the_book(data: bytes) -> list[list[bytes]]:
    """The lines of each event, worked out slowly from the standard's own words."""
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    events: list[list[bytes]] = []
    block: list[bytes] = []
    for line in lines:
        if line:
            block.append(line)
        elif block:
            events.append(block)
            block = []
    return events


@given(data=byte_streams(), cuts=st.lists(st.integers(0, 300), max_size=12))
@example(data=b"data: a\r\n\r\ndata: b\r\n\r\n", cuts=[10])  # between the last CR and LF
@example(data=b"data: a\n\n\ndata: b\n\n", cuts=[10])
@example(data=b"data: a\r\rdata: b\r\r", cuts=[8])
def test_any_cut_of_any_stream_gives_the_same_events(data: bytes, cuts: list[int]) -> None:
    found = split(*in_pieces(data, cuts))
    assert [event[:-2].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n") for event in found] == (
        events_by_the_book(data)
    )
    assert all(event.endswith(b"\n\n") for event in found)
    assert found == split(*(data[place : place + 1] for place in range(len(data))))


@given(texts=st.lists(TEXT.filter(str.strip), min_size=1, max_size=5), end=LINE_ENDS)
def test_data_comes_back_whatever_the_line_ends(texts: list[str], end: str) -> None:
    data = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    assert [event_data(event).decode() for event in split(data)] == [text.strip(" \x0b\x0c") for text in texts]


def test_what_servers_send_goes_through_as_the_same_object() -> None:
    data = b'data: {"a": 1}\n\n'
    assert split(data)[0] is data


def test_a_character_cut_in_two_is_whole_again() -> None:
    data = 'data: {"content": "🙂"}\n\n'.encode()
    middle = data.index("🙂".encode()) + 2
    assert split(data[:middle], data[middle:]) == [data]


def test_an_event_of_8_mib_in_many_pieces() -> None:
    data = b"data: " + b"x" * (8 * 1024 * 1024) + b"\n\n"
    assert split(*(data[start : start + 65_536] for start in range(0, len(data), 65_536))) == [data]


def test_an_event_without_end_is_refused_at_the_limit() -> None:
    splitter = EventSplitter(max_event_bytes=1000)
    assert splitter.feed(b"data: " + b"x" * 900) == []
    with pytest.raises(EventTooLarge, match="1000 bytes"):
        splitter.feed(b"x" * 100)


def test_what_follows_the_last_event_is_kept_apart() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n\ndata: b") == [b"data: a\n\n"]
    assert splitter.rest() == b"data: b"


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (b"data: {}\n\n", b"{}"),
        (b"data:{}\n\n", b"{}"),
        (b"data: {}\r\n\r\n", b"{}"),
        (b"event: x\ndata: {}\nid: 4\n\n", b"{}"),
        (b'data: {"a":\ndata: 1}\n\n', b'{"a":\n1}'),
        (b": keep-alive\n\n", b""),
        (b"event: ping\n\n", b""),
        (b"database: no\n\n", b""),
        (b"data: [DONE] \n\n", b"[DONE]"),
        (b"event: end\ndata: [DONE] \n\n", b"[DONE]"),
    ],
)
def test_the_data_of_an_event(event: bytes, data: bytes) -> None:
    assert event_data(event) == data


@pytest.mark.parametrize(
    ("event", "replaced"),
    [
        (b"data: {}\n\n", b"data: new\n\n"),
        (b"event: x\ndata: {}\nid: 4\n\n", b"event: x\nid: 4\ndata: new\n\n"),
        (b": note\r\ndata: a\r\ndata: b\n\n", b": note\ndata: new\n\n"),
    ],
)
def test_replaced_data_leaves_the_other_lines(event: bytes, replaced: bytes) -> None:
    assert replace_data(event, b"new") == replaced
    assert event_data(replaced) == b"new"


def test_one_event_from_data() -> None:
    assert data_event(b"{}") == b"data: {}\n\n"
