"""Turns as the page shows them: rendered text, meter, problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from playground.markdown import render
from playground.meters import TurnMeter, meters_of
from playground.models import Turn
from playground.problems import Problem, explain

# How often the page asks for a meter that is not rated yet, and after which pauses.
METER_PAUSES_SECONDS = (0.4, 0.6, 1, 2, 3, 5, 8, 15)


@dataclass(frozen=True, slots=True)
class ShownTurn:
    turn: Turn
    meter: TurnMeter | None = None
    meter_attempt: int = 0
    is_last: bool = False

    @property
    def by_user(self) -> bool:
        return self.turn.role == Turn.Role.USER

    @property
    def html(self) -> SafeString:
        return render(self.turn.content)

    @property
    def reasoning_html(self) -> SafeString:
        return render(self.turn.reasoning)

    @property
    def problem(self) -> Problem | None:
        if self.turn.error is None:
            return None
        return explain(self.turn.error, begun=bool(self.turn.content or self.turn.reasoning))

    @property
    def note(self) -> str | Promise:
        """Why there is less than one expects, where that is so."""
        if self.turn.finish_reason == "length":
            if not self.turn.content and self.turn.reasoning:
                return _(
                    "Thinking used up max tokens before the answer began. Raise max tokens, or choose a lower effort."
                )
            return _("The answer ended because it reached max tokens. Raise it for a longer one.")
        if self.turn.state == Turn.State.STOPPED:
            return _("You stopped this answer.")
        if self.turn.state == Turn.State.DONE and not self.turn.content:
            return _("The model ended without an answer.")
        return ""

    @property
    def meter_awaited(self) -> bool:
        """The ledger will have more to say, and it is worth asking again."""
        return bool(self.turn.request_id) and self._unsettled and self.meter_attempt < len(METER_PAUSES_SECONDS)

    @property
    def meter_overdue(self) -> bool:
        return bool(self.turn.request_id) and self._unsettled and not self.meter_awaited

    @property
    def meter_pause_ms(self) -> int:
        return int(METER_PAUSES_SECONDS[self.meter_attempt] * 1000)

    @property
    def _unsettled(self) -> bool:
        return self.meter is None or (self.meter.charged and self.meter.amount_ppt is None)


def shown(turns: Sequence[Turn]) -> list[ShownTurn]:
    meters = meters_of(turn.request_id for turn in turns)
    last = turns[-1].pk if turns else None
    return [
        ShownTurn(turn, meters.get(turn.request_id) if turn.request_id else None, is_last=turn.pk == last)
        for turn in turns
    ]


def shown_one(turn: Turn, *, meter_attempt: int = 0, is_last: bool = True) -> ShownTurn:
    meters = meters_of([turn.request_id])
    return ShownTurn(turn, meters.get(turn.request_id) if turn.request_id else None, meter_attempt, is_last)
