"""An answer's tool calls, put together from the pieces they stream in."""

from __future__ import annotations

from typing import Any

type Call = dict[str, str]

# More calls, or longer arguments, are a model gone wrong.
MAX_CALLS = 64
MAX_ARGUMENTS = 200_000


class ToolCalls:
    """Pieces are told apart by their index, which may start anywhere; one without is the last one's, or a new call."""

    def __init__(self) -> None:
        self._calls: dict[int, Call] = {}

    def add(self, pieces: Any) -> bool:
        """Whether there was anything in them."""
        added = False
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                added = self._add(piece) or added
        return added

    def _add(self, piece: dict[str, Any]) -> bool:
        index = piece.get("index")
        if not isinstance(index, int):
            index = max(self._calls, default=-1) + (1 if piece.get("id") or not self._calls else 0)
        call = self._calls.get(index)
        if call is None:
            if len(self._calls) == MAX_CALLS:
                return False
            call = self._calls[index] = {"id": "", "name": "", "arguments": ""}
        function = piece.get("function") or {}
        call["id"] = call["id"] or _text(piece.get("id"))
        call["name"] += _text(function.get("name"))
        call["arguments"] = (call["arguments"] + _text(function.get("arguments")))[:MAX_ARGUMENTS]
        return True

    def listed(self) -> list[Call]:
        """In the order of their indexes. A backend that gives no id gets one, for the result to name."""
        calls = [self._calls[index] for index in sorted(self._calls)]
        return [{**call, "id": call["id"] or f"call_{number}"} for number, call in enumerate(calls, 1)]


def _text(value: Any) -> str:
    # PostgreSQL's text and JSON have no NUL.
    return value.replace("\x00", "") if isinstance(value, str) else ""
