"""Portable mode: one request that suits every model, changed here into what the model at hand takes.

`adapt` reads the model's card and nothing else. What it cannot make sense of it leaves alone: judging a
request is `gateway.schema`'s work. docs/decisions/portable-mode.md gives the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.catalog import EFFORTS, Developer, Model, Switch, SystemPlacement

type Json = dict[str, Any]

# Two names for thinking hard: no model that lacks one of them means something else by the other.
TWINS = {"high": "xhigh", "xhigh": "high"}


def adapt(document: Json, model: Model) -> tuple[Json, list[str]]:
    """The request as `model` takes it, and what was changed in short stable words; the document itself stays."""
    adapted = dict(document)
    changes = [
        *_name_system(adapted, model),
        *_place_system(adapted, model),
        *_set_thinking(adapted, model),
        *_limit_tokens(adapted),
    ]
    return adapted, changes


# -- messages ------------------------------------------------------------------------------------


def _name_system(document: Json, model: Model) -> list[str]:
    rules = model.messages
    if rules.developer is Developer.ACCEPTED and not rules.single_system_first:
        return []
    messages = document.get("messages")
    if not isinstance(messages, list) or not any(_role(message) == "developer" for message in messages):
        return []
    document["messages"] = [
        {**message, "role": "system"} if _role(message) == "developer" else message for message in messages
    ]
    return ["developer->system"]


def _place_system(document: Json, model: Model) -> list[str]:
    """One system message at index 0, holding all of them in their order."""
    messages = document.get("messages")
    if model.messages.system is SystemPlacement.ANYWHERE or not isinstance(messages, list):
        return []
    places = [place for place, message in enumerate(messages) if _role(message) == "system"]
    if places in ([], [0]):
        return []
    systems = [messages[place] for place in places]
    content = _joined([message.get("content") for message in systems])
    if content is None:
        return []
    others = [message for message in messages if _role(message) != "system"]
    document["messages"] = [{**systems[0], "content": content}, *others]
    return ["system-merged" if len(systems) > 1 else "system-first"]


def _joined(contents: Sequence[Any]) -> str | list[Any] | None:
    """Texts with a blank line between them, or the parts of all; None where one is neither."""
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(contents)
    parts: list[Any] = []
    for content in contents:
        if not isinstance(content, str | list):
            return None
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, dict) else None


# -- thinking and length -------------------------------------------------------------------------


def _set_thinking(document: Json, model: Model) -> list[str]:
    effort, thinking = _effort(document), model.thinking
    if effort not in EFFORTS:
        return []
    if thinking.switch is Switch.ENABLE_THINKING:
        return _switch_thinking(document, effort)
    if thinking.switch is Switch.NONE:
        _take_effort(document)
        return ["reasoning_effort-removed"]
    tier = nearest_effort(effort, thinking.efforts)
    if tier == effort:
        return []
    _take_effort(document)
    document["reasoning_effort"] = tier
    return [f"reasoning_effort:{effort}->{tier}"]


def _switch_thinking(document: Json, effort: str) -> list[str]:
    """The tier as the template's switch; a switch that the client set itself stands."""
    template = document.get("chat_template_kwargs")
    if not (template is None or isinstance(template, dict)):
        return []
    _take_effort(document)
    on = effort != "none"
    document["chat_template_kwargs"] = {"enable_thinking": on, **(template or {})}
    return [f"reasoning_effort:{effort}->enable_thinking:{str(on).lower()}"]


def nearest_effort(effort: str, tiers: Sequence[str]) -> str:
    """The tier itself, else its twin, else the nearest in the order of EFFORTS; of two equally near the lower."""
    known = [tier for tier in EFFORTS if tier in tiers]
    if effort in known or not known:
        return effort
    twin = TWINS.get(effort)
    if twin in known:
        return twin
    place = EFFORTS.index(effort)
    return min(known, key=lambda tier: abs(EFFORTS.index(tier) - place))


def _effort(document: Json) -> Any:
    """The tier asked for in either spelling; None where there is none, or two."""
    plain, reasoning = document.get("reasoning_effort"), document.get("reasoning")
    nested = reasoning.get("effort") if isinstance(reasoning, dict) else None
    if plain is not None and nested is not None:
        return None
    effort = nested if plain is None else plain
    return effort if isinstance(effort, str) else None


def _take_effort(document: Json) -> None:
    document.pop("reasoning_effort", None)
    reasoning = document.get("reasoning")
    if isinstance(reasoning, dict) and "effort" in reasoning:
        document["reasoning"] = {name: value for name, value in reasoning.items() if name != "effort"}


def _limit_tokens(document: Json) -> list[str]:
    """OpenAI's newer name for the same limit; where both were sent, the older one stands and this one is dropped."""
    limit = document.get("max_completion_tokens")
    if limit is None or document.get("max_tokens") is not None:
        return []
    del document["max_completion_tokens"]
    document["max_tokens"] = limit
    return ["max_completion_tokens->max_tokens"]
