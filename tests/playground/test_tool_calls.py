"""Tool calls as they stream in."""

from __future__ import annotations

from typing import Any

import pytest

from playground.tool_calls import MAX_ARGUMENTS, MAX_CALLS, ToolCalls


def piece(index: int | None = 0, *, id: str | None = None, name: str | None = None, arguments: str = "") -> Any:
    function: dict[str, Any] = {"arguments": arguments} | ({"name": name} if name else {})
    return {"function": function} | ({"id": id} if id else {}) | ({"index": index} if index is not None else {})


def put_together(*pieces: Any) -> list[dict[str, str]]:
    calls = ToolCalls()
    for one in pieces:
        calls.add([one])
    return calls.listed()


def test_arguments_come_in_pieces() -> None:
    made = put_together(piece(id="a", name="f"), piece(arguments='{"x"'), piece(arguments=": 1}"))
    assert made == [{"id": "a", "name": "f", "arguments": '{"x": 1}'}]


def test_pieces_of_several_calls_may_alternate_and_start_anywhere() -> None:
    made = put_together(
        piece(3, id="b", name="g"), piece(1, id="a", name="f"), piece(3, arguments="2"), piece(1, arguments="1")
    )
    assert made == [{"id": "a", "name": "f", "arguments": "1"}, {"id": "b", "name": "g", "arguments": "2"}]


def test_without_indexes_an_id_begins_a_call() -> None:
    made = put_together(
        piece(None, id="a", name="f"), piece(None, arguments="1"), piece(None, id="b", name="g", arguments="2")
    )
    assert [call["arguments"] for call in made] == ["1", "2"]


def test_a_call_without_an_id_gets_one() -> None:
    assert put_together(piece(name="f"))[0]["id"] == "call_1"


@pytest.mark.parametrize("nonsense", [None, "x", [None], [{"function": None}], [{"function": {"arguments": 3}}], {}])
def test_nonsense_does_no_harm(nonsense: Any) -> None:
    calls = ToolCalls()
    calls.add(nonsense)
    assert all(call["name"] == "" for call in calls.listed())


def test_calls_and_arguments_are_bounded() -> None:
    calls = ToolCalls()
    for index in range(MAX_CALLS + 5):
        calls.add([piece(index, name="f", arguments="x" * (MAX_ARGUMENTS + 1))])
    assert len(calls.listed()) == MAX_CALLS
    assert {len(call["arguments"]) for call in calls.listed()} == {MAX_ARGUMENTS}
