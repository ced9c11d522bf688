"""Turns as the page shows them: rendered text, pictures, tool calls, meter, problem, alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.db.models import Prefetch, prefetch_related_objects
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from playground.adaptations import explain_changes
from playground.branches import ALONE, Place, Tree, tree_of, turns_of
from playground.json_view import formatted, json_html
from playground.markdown import code_html, render
from playground.meters import TurnMeter, meters_of
from playground.models import Image, Turn
from playground.problems import Problem, explain
from playground.rendered import Rendered, rendered

# How often the page asks for a meter that is not rated yet, and after which pauses.
METER_PAUSES_SECONDS = (0.4, 0.6, 1, 2, 3, 5, 8, 15)

type ImageUrl = Callable[[Image], str]


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A tool call, and what it was answered where the path goes on so."""

    id: str
    name: str
    arguments: SafeString
    result: str | None = None


@dataclass(frozen=True, slots=True)
class ShownTurn:
    turn: Turn
    meter: TurnMeter | None = None
    meter_attempt: int = 0
    place: Place = ALONE
    # The conversation's address: those of its turns begin so.
    base: str = ""
    image_urls: tuple[str, ...] = ()
    # The turn that follows on the path.
    following: Turn | None = None
    # Of an answer that is finished.
    rendered: Rendered | None = None

    @property
    def url(self) -> str:
        return f"{self.base}turns/{self.turn.pk}/"

    @property
    def by_user(self) -> bool:
        return self.turn.role == Turn.Role.USER

    @property
    def by_tool(self) -> bool:
        return self.turn.role == Turn.Role.TOOL

    @property
    def html(self) -> SafeString:
        if self.turn.is_json and not self.turn.is_streaming and self.turn.content:
            return json_html(self.turn.content)
        return self.rendered.content_html if self.rendered else render(self.turn.content)

    @property
    def raw_html(self) -> SafeString | None:
        """A JSON answer as it came, where that is not how it is shown."""
        content = self.turn.content
        return code_html(content, "json") if self.turn.is_json and formatted(content) not in (None, content) else None

    @property
    def is_broken_json(self) -> bool:
        return self.turn.is_json and bool(self.turn.content) and formatted(self.turn.content) is None

    @property
    def reasoning_html(self) -> SafeString:
        return self.rendered.reasoning_html if self.rendered else render(self.turn.reasoning)

    @property
    def calls(self) -> list[ShownCall]:
        told = self.following.tool_results if self.following and self.following.role == Turn.Role.TOOL else []
        results = {result["id"]: result["content"] for result in told}
        return [
            ShownCall(call["id"], call["name"], json_html(call["arguments"]), results.get(call["id"]))
            for call in self.turn.tool_calls
        ]

    @property
    def calls_are_answered(self) -> bool:
        return self.following is not None and self.following.role == Turn.Role.TOOL

    @property
    def changes(self) -> list[str]:
        return list(explain_changes(self.turn.adapted))

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
        if self.turn.state == Turn.State.DONE and not (self.turn.content or self.turn.tool_calls):
            return _("The model ended without an answer.")
        return ""

    @property
    def context_tokens(self) -> int | None:
        """What the next request says again: question and answer, not the thinking. None where nobody counted it."""
        if self.meter is None or not self.meter.charged or self.turn.is_streaming:
            return None
        record = self.meter.record
        return record.prompt_tokens + record.completion_tokens - (record.reasoning_tokens or 0)

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


def own_image_url(image: Image) -> str:
    return reverse("playground:image", args=[image.turn.conversation_id, image.pk])


def shown(
    turns: Sequence[Turn], *, tree: Tree, image_url: ImageUrl = own_image_url, meter_attempt: int = 0
) -> list[ShownTurn]:
    """Consecutive turns of one path."""
    meters = meters_of(turn.request_id for turn in turns)
    html = rendered(turns)
    prefetch_related_objects(turns, Prefetch("images", Image.objects.defer("data")))
    # Reversed once: a page has a hundred of them.
    base = reverse("playground:conversation", args=[turns[0].conversation_id]) if turns else ""
    made = []
    for turn, following in pairwise([*turns, None]):
        assert turn is not None
        fields: dict[str, Any] = {"place": tree.place(turn.pk), "following": following, "base": base}
        fields["rendered"] = html.get(turn.pk)
        fields["image_urls"] = tuple(image_url(image) for image in turn.images.all())
        meter = meters.get(turn.request_id) if turn.request_id else None
        made.append(ShownTurn(turn, meter, meter_attempt, **fields))
    return made


def shown_one(turn: Turn, *, meter_attempt: int = 0) -> ShownTurn:
    tree = tree_of(turn.conversation)
    path = tree.path(through=turn.pk) if turn.pk in tree else []
    after = path[path.index(turn.pk) + 1 :][:1] if path else []
    turns = [turn, *turns_of(turn.conversation, after)]
    return shown(turns, tree=tree, meter_attempt=meter_attempt)[0]
