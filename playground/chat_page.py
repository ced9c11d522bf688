"""What the chat's templates are given. Whatever belongs to somebody else is a 404 here."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Q
from django.http import Http404
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext

from accounts.rights import Right, may
from gateway.catalog import Model, unknown_model
from playground import conversations as chats
from playground.branches import tree_of, turns_of
from playground.chat_settings import controls_of
from playground.models import Conversation, Turn
from playground.request import PersonRequest
from playground.starters import example_tools
from playground.transcript import shown

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CONVERSATIONS_A_PAGE = 30
FOUND_AT_MOST = 50
PINNED_AT_MOST = 50
# What is read first is there at once; what stands above it comes when one scrolls up to it.
TURNS_AT_FIRST = 6
TURNS_A_PAGE = 20
# Nor more text than this: what nobody has looked at yet is rendered by the page that shows it first.
CHARACTERS_AT_FIRST = 3_000
CHARACTERS_A_PAGE = 8_000
# The last question and its answer are there however long they are.
TURNS_AT_LEAST = 2


def own(request: PersonRequest, conversation_id: uuid.UUID) -> Conversation:
    try:
        return chats.own(request.user, request.team, conversation_id)
    except Conversation.DoesNotExist:
        raise Http404 from None


def own_turn(request: PersonRequest, conversation_id: uuid.UUID, turn_id: int, *roles: Turn.Role) -> Turn:
    conversation = own(request, conversation_id)
    turn = conversation.turns.filter(pk=turn_id, deleted_at=None, role__in=roles or Turn.Role).first()
    if turn is None:
        raise Http404
    turn.conversation = conversation
    return turn


# -- turns -----------------------------------------------------------------------------------------


def turns_context(conversation: Conversation, *, before: str = "", around: int | None = None) -> dict[str, Any]:
    """A page of the path that is shown: its end, what stands before a turn, or from a turn on."""
    tree = tree_of(conversation)
    path = tree.path()
    is_above = before.isdecimal() and int(before) in path
    end = path.index(int(before)) if is_above else len(path)
    start = max(0, end - (TURNS_A_PAGE if is_above else TURNS_AT_FIRST))
    if around in path:
        start = min(start, max(0, path.index(around) - 1))
    # One more than shown: whether tool calls were answered is said by the turn that follows.
    turns = turns_of(conversation, path[start : end + 1])
    if around not in path:
        too_many = _too_many(turns[: end - start], CHARACTERS_A_PAGE if is_above else CHARACTERS_AT_FIRST)
        start, turns = start + too_many, turns[too_many:]
    if any(turn.is_cut_off for turn in turns):
        conversation.turns.close_cut_off()
        turns = turns_of(conversation, path[start : end + 1])
    return {
        "conversation": conversation,
        "turns": shown(turns, tree=tree)[: end - start],
        "earlier": path[start] if start else None,
        "last_turn": path[-1] if path else None,
        "path_mark": tree.mark(path),
    }


def _too_many(turns: list[Turn], characters: int) -> int:
    """How many of the first to leave out, so that the rest has no more text than that."""
    total = 0
    for number, turn in enumerate(reversed(turns)):
        total += len(turn.content) + len(turn.reasoning)
        if total > characters and number >= TURNS_AT_LEAST:
            return len(turns) - number
    return 0


@dataclass(frozen=True, slots=True)
class News:
    """What a page that was loaded earlier lacks: turns to stand under its own, or all that it should show."""

    context: dict[str, Any]
    appended: bool


def news(conversation: Conversation, *, mark: str, first: int, last: int) -> News | None:
    """`mark` names the path of a page that shows it from `first` to `last` and sees nothing grow."""
    tree = tree_of(conversation)
    path = tree.path()
    known = path[: path.index(last) + 1] if last in path else []
    if tree.mark(known) != mark:
        return News(turns_context(conversation, around=first), appended=False)
    if known == path:
        # A turn that was taken for cut off may have gone on.
        grows = conversation.turns.streaming().filter(pk=last).exists()
        return News(turns_context(conversation, around=first), appended=False) if grows else None
    context = turns_context(conversation, around=path[len(known)])
    new = [shown for shown in context["turns"] if shown.turn.pk > last]
    if not new or not new[0].by_user:
        # It says something of the turn before it as well.
        return News(turns_context(conversation, around=first), appended=False)
    return News(context | {"turns": new, "earlier": None}, appended=True)


# -- the list --------------------------------------------------------------------------------------


def list_context(
    request: PersonRequest, *, current: Conversation | None = None, after: str = "", query: str = ""
) -> dict[str, Any]:
    """A page of one's conversations, the pinned ones before the first; or those that hold the words of `query`.

    The one whose page this is, or from whose page it is asked for, is marked.
    """
    context = _list_page(request, after=after, query=query)
    asked_from = UUID.search(request.htmx.current_url or "")
    marked = str(current.pk) if current else asked_from and asked_from[0]
    for row in (*context["pinned"], *context["conversations"]):
        row.is_current = str(row.pk) == marked
    return context | {"current": current}


def _list_page(request: PersonRequest, *, after: str, query: str) -> dict[str, Any]:
    rows = Conversation.objects.of(request.user, request.team).defer("settings")
    context: dict[str, Any] = {
        "query": query,
        "more": "",
        "pinned": [],
        "may_ask": may_ask(request),
    }
    if words := query.strip()[:200]:
        return context | {"conversations": list(rows.matching(words)[:FOUND_AT_MOST])}
    moment, last_id = _cursor(after)
    if moment is None:
        context["pinned"] = list(rows.exclude(pinned_at=None).order_by("-pinned_at")[:PINNED_AT_MOST])
    else:
        rows = rows.filter(Q(updated_at__lt=moment) | Q(updated_at=moment, id__lt=last_id))
    page = list(rows.filter(pinned_at=None)[: CONVERSATIONS_A_PAGE + 1])
    if len(page) > CONVERSATIONS_A_PAGE:
        page.pop()
        context["more"] = f"{page[-1].updated_at.isoformat()},{page[-1].pk}"
    _head_days(page, zone=ZoneInfo(request.team.time_zone), after=moment)
    return context | {"conversations": page}


def _cursor(after: str) -> tuple[datetime | None, str]:
    moment, _comma, last_id = after.partition(",")
    try:
        uuid.UUID(last_id)
        return parse_datetime(moment), last_id
    except ValueError:
        return None, ""


def _head_days(rows: list[Conversation], *, zone: ZoneInfo, after: datetime | None) -> None:
    """The first of each span of days carries its heading."""
    today = timezone.localdate(timezone=zone)
    last = _span(after.astimezone(zone).date(), today) if after else ""
    for row in rows:
        span = _span(row.updated_at.astimezone(zone).date(), today)
        row.heading = span if span != last else ""  # type: ignore[attr-defined]
        last = span


def _span(day: date, today: date) -> str:
    if day >= today:
        return gettext("Today")
    if day == today - timedelta(days=1):
        return gettext("Yesterday")
    return gettext("Last 7 days") if day > today - timedelta(days=7) else gettext("Earlier")


# -- settings --------------------------------------------------------------------------------------


def settings_context(models: list[Model], model_id: str, typed: Mapping[str, Any]) -> dict[str, Any]:
    """`typed` is what the fields hold, as it was typed."""
    chosen = next((model for model in models if model.id == model_id), None)
    portable = bool(typed.get("portable"))
    return {
        "families": by_family(models),
        "model_id": model_id,
        "model": chosen,
        "controls": controls_of(chosen or unknown_model(model_id), portable=portable),
        "typed": typed,
        "example_tools": example_tools(),
    }


def by_family(models: list[Model]) -> dict[str, list[Model]]:
    families: dict[str, list[Model]] = {}
    for model in models:
        families.setdefault(model.family, []).append(model)
    return families


def may_ask(request: PersonRequest) -> bool:
    """A viewer of the team reads what is shared with it and asks no model."""
    return may(request.membership, Right.USE_MODELS)
