"""What the backend will emit for a request: for each choice its pieces, one token each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from gateway.demo import answer, facts, subject, thinking, tools
from gateway.demo.chat_request import ChatRequest
from gateway.demo.prompt import Prompt
from gateway.demo.tokens import split


class Kind(Enum):
    THINKING = auto()
    CONTENT = auto()
    CALL_START = auto()  # carries the call's id and name
    CALL_ARGUMENTS = auto()


class Piece(NamedTuple):
    """One token on the wire. A named tuple, as hundreds are made for each request."""

    kind: Kind
    text: str
    call: int = 0  # index of the tool call it belongs to
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    index: int
    pieces: list[Piece]
    finish_reason: str

    def text(self, kind: Kind) -> str:
        return "".join(piece.text for piece in self.pieces if piece.kind is kind)


@dataclass(slots=True)
class _Draft:
    pieces: list[Piece] = field(default_factory=list)
    finish_reason: str = "stop"


def generate(request: ChatRequest, prompt: Prompt) -> list[Choice]:
    studied = subject.study(request.prompt)
    thought = [Piece(Kind.THINKING, token) for token in thinking.think(request, studied)]
    room = _room(request, prompt)
    choices = []
    for index in range(request.choices):
        draft = _calls(request, studied)
        if draft is None:
            known = facts.gather(request, prompt, thinking_tokens=len(thought), choice=index)
            draft = _written(request, answer.write(request, studied, known))
        pieces = thought + draft.pieces
        # Thinking and answer draw on one budget, so a small one may end before any content.
        cut = len(pieces) > room
        reason = "length" if cut else draft.finish_reason
        choices.append(Choice(index=index, pieces=pieces[:room], finish_reason=reason))
    return choices


def _room(request: ChatRequest, prompt: Prompt) -> int:
    window = request.model.context_length or 1_000_000
    left = window - len(prompt.tokens)
    return left if request.max_tokens is None else min(request.max_tokens, left)


def _calls(request: ChatRequest, studied: subject.Subject) -> _Draft | None:
    calls = tools.calls_for(request, studied)
    if not calls:
        return None
    return _Draft([piece for index, call in enumerate(calls) for piece in _call(index, call)], "tool_calls")


def _call(index: int, call: tools.ToolCall) -> Iterator[Piece]:
    yield Piece(Kind.CALL_START, call.name, call=index, call_id=call.id)
    for token in split(call.arguments):
        yield Piece(Kind.CALL_ARGUMENTS, token, call=index)


def _written(request: ChatRequest, tokens: list[str]) -> _Draft:
    """The answer up to its first stop sequence, which itself is not sent."""
    text = "".join(tokens)
    ends = [at for stop in request.stop if (at := text.find(stop)) >= 0]
    if ends:
        tokens = split(text[: min(ends)])
    return _Draft([Piece(Kind.CONTENT, token) for token in tokens])
