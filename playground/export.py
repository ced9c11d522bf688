"""A conversation to take along: as Markdown what is shown, as JSON everything with all its branches."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from django.db.models import prefetch_related_objects
from django.utils.translation import gettext as _

from playground.branches import tree_of, turns_of
from playground.messages import data_url
from playground.meters import TurnMeter, meters_of
from playground.models import Conversation, Turn
from playground.tool_schema import pretty

FORMAT = "token-factory-conversation/1"


def as_markdown(conversation: Conversation) -> str:
    tree = tree_of(conversation)
    turns = turns_of(conversation, tree.path())
    prefetch_related_objects(turns, "images")
    meters = meters_of(turn.request_id for turn in turns)
    parts = [f"# {conversation.title}", f"{conversation.created_at:%Y-%m-%d %H:%M} UTC"]
    if system := conversation.settings.get("system"):
        parts += ["## " + _("System prompt"), system]
    for turn in turns:
        parts += _turn_as_markdown(turn, meters.get(turn.request_id) if turn.request_id else None)
    return "\n\n".join(parts) + "\n"


def _turn_as_markdown(turn: Turn, meter: TurnMeter | None) -> list[str]:
    if turn.role == Turn.Role.TOOL:
        return ["## " + _("Tool"), *(f"`{one['name']}`\n\n{_fenced(one['content'])}" for one in turn.tool_results)]
    if turn.role == Turn.Role.USER:
        pictures = [_("[%d pictures]") % len(turn.images.all())] if turn.images.all() else []
        return ["## " + _("You"), *pictures, turn.content]
    parts = [f"## {turn.model}"]
    if turn.reasoning:
        parts += ["> " + turn.reasoning.strip().replace("\n", "\n> ")]
    parts += [_fenced(turn.content, "json") if turn.is_json else turn.content] if turn.content else []
    parts += [f"`{call['name']}`\n\n{_fenced(call['arguments'], 'json')}" for call in turn.tool_calls]
    if turn.state in (Turn.State.STOPPED, Turn.State.FAILED):
        parts.append("*" + _("This answer is not complete.") + "*")
    if meter is not None and meter.points is not None:
        counts = {"in": meter.record.prompt_tokens, "out": meter.record.completion_tokens, "points": meter.points}
        parts.append("*" + _("%(in)d tokens in, %(out)d out, %(points)s points") % counts + "*")
    return parts


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def as_json(conversation: Conversation) -> str:
    tree = tree_of(conversation)
    turns = list(conversation.turns.filter(deleted_at=None).prefetch_related("images"))
    shown = set(tree.path())
    meters = meters_of(turn.request_id for turn in turns)
    document = {
        "format": FORMAT,
        "id": str(conversation.pk),
        "title": conversation.title,
        "model": conversation.model,
        "settings": conversation.settings,
        "created_at": conversation.created_at.isoformat(),
        "turns": [
            _turn_as_json(turn, meters.get(turn.request_id) if turn.request_id else None, shown=turn.pk in shown)
            # What follows a deleted turn is deleted with it.
            for turn in turns
            if tree.path_to(turn.pk)
        ],
    }
    return pretty(document) + "\n"


def _turn_as_json(turn: Turn, meter: TurnMeter | None, *, shown: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": turn.pk,
        "parent": turn.parent_id,
        "shown": shown,
        "role": turn.role,
        "content": turn.content,
        "created_at": turn.created_at.isoformat(),
    }
    if turn.role == Turn.Role.ASSISTANT:
        document |= {"model": turn.model, "state": turn.state, "finish_reason": turn.finish_reason}
    optional = {
        "reasoning": turn.reasoning,
        "thinking_seconds": turn.thinking_seconds,
        "tool_calls": turn.tool_calls,
        "tool_results": turn.tool_results,
        "adapted": turn.adapted,
        "error": turn.error,
        "images": [data_url(image) for image in turn.images.all()],
        "request_id": str(turn.request_id) if turn.request_id else None,
        "usage": _usage(meter) if meter else None,
    }
    return document | {name: value for name, value in optional.items() if value}


def _usage(meter: TurnMeter) -> dict[str, Any]:
    record = meter.record
    return {
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "completion_tokens": record.completion_tokens,
        "reasoning_tokens": record.reasoning_tokens,
        "points": meter.points,
    }


def file_name(conversation: Conversation, *, ending: str) -> str:
    """The Content-Disposition of a download, its name in whatever script the title has."""
    words = re.sub(r"[^\w\- ]+", "", conversation.title).strip()[:80] or str(conversation.pk)
    plain = words.encode("ascii", "ignore").decode().strip() or "conversation"
    return f"attachment; filename=\"{plain}.{ending}\"; filename*=UTF-8''{quote(f'{words}.{ending}')}"
