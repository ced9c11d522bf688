"""Reads one catalog file into model cards, and says what is wrong with it and where.

Pure parsing: the caller brings the text. Every field has a default but `id`, so a card
can be as short as its id and grow as facts about it become known.
"""

import difflib
import tomllib
from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from typing import Any

from gateway.model_card import (
    EFFORTS,
    Developer,
    Endpoint,
    ImageTokens,
    MessageRules,
    Model,
    ReasoningTokens,
    Rejection,
    Switch,
    SystemPlacement,
    Thinking,
    UsageShape,
)

_MODALITIES = ("text", "image", "video", "audio", "file", "probabilities")


class CatalogError(ValueError):
    """A catalog file that cannot be used: which file, model and field, and why."""

    def __init__(self, problem: str, *, file: str, model: str = "", field: str = "") -> None:
        self.file, self.model, self.field, self.problem = file, model, field, problem
        where = [file]
        if model:
            where.append(f"model {model}")
        if field:
            where.append(f"field {field}")
        super().__init__(": ".join([*where, problem]))


class _Table:
    """A TOML table being read: fields are taken by name, what is left over is an error."""

    def __init__(self, data: Mapping[str, Any], *, file: str, model: str = "", path: str = "") -> None:
        self._data = dict(data)
        self._taken: set[str] = set()
        self.file, self.model, self._path = file, model, path

    def error(self, name: str, problem: str) -> CatalogError:
        return CatalogError(problem, file=self.file, model=self.model, field=f"{self._path}{name}")

    def _take[T](self, name: str, kind: type[T], expected: str) -> T | None:
        self._taken.add(name)
        value = self._data.get(name)
        # bool is an int to Python; not to a reader of the file.
        if value is None or (type(value) is kind):
            return value
        raise self.error(name, f"expected {expected}, got {_shown(value)}")

    def string(self, name: str, default: str = "") -> str:
        value = self._take(name, str, "a string")
        if value is not None and not value.strip():
            raise self.error(name, "must not be empty")
        return default if value is None else value

    def boolean(self, name: str, default: bool) -> bool:
        value = self._take(name, bool, "true or false")
        return default if value is None else value

    def fact(self, name: str) -> bool | None:
        """true, false, or "unverified" (also what a missing field means)."""
        if self._data.get(name) == "unverified":
            self._taken.add(name)
            return None
        return self._take(name, bool, 'true, false or "unverified"')

    def count(self, name: str) -> int | None:
        value = self._take(name, int, "a whole number")
        if value is not None and value < 1:
            raise self.error(name, f"must be at least 1, got {value}")
        return value

    def day(self, name: str, default: date | None) -> date | None:
        return self._take(name, date, "a date like 2026-10-19") or default

    def choice[E: StrEnum](self, name: str, default: E) -> E:
        value = self.string(name, default.value)
        kind = type(default)
        try:
            return kind(value)
        except ValueError:
            problem = f"unknown value {_shown(value)}, expected one of {_listed(kind)}"
            raise self.error(name, problem) from None

    def strings(self, name: str, default: tuple[str, ...] = (), *, among: tuple[str, ...] = ()) -> tuple[str, ...]:
        values = self._take(name, list, "a list of strings")
        if values is None:
            return default
        for position, value in enumerate(values):
            if type(value) is not str:
                raise self.error(name, f"item {position}: expected a string, got {_shown(value)}")
            if among and value not in among:
                known = ", ".join(among)
                raise self.error(name, f"unknown value {_shown(value)}, expected some of {known}")
        if len(set(values)) != len(values):
            raise self.error(name, "names a value twice")
        return tuple(values)

    def table(self, name: str) -> "_Table":
        value = self._take(name, dict, "a table")
        return _Table(value or {}, file=self.file, model=self.model, path=f"{self._path}{name}.")

    def rejection(self, name: str) -> Rejection | None:
        if name not in self._data:
            return None
        table = self.table(name)
        status, text = table.count("status"), table.string("text")
        table.finish()
        if status not in (400, 422):
            raise table.error("status", f"expected 400 or 422, got {status}")
        if not text:
            raise table.error("text", "is required")
        return Rejection(status=status, text=text)

    def finish(self) -> None:
        for name in self._data:
            if name not in self._taken:
                near = difflib.get_close_matches(name, self._taken, n=1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise self.error(name, f"unknown field{hint}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(kind: type[StrEnum]) -> str:
    return ", ".join(kind)


def parse(text: str, *, file: str) -> list[Model]:
    """The cards of one file in its order. Raises `CatalogError`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"not valid TOML: {error}", file=file) from None
    top = _Table(data, file=file)
    verified_on = top.day("verified_on", None)
    entries = top._take("model", list, "[[model]] tables") or []
    top.finish()
    models: dict[str, Model] = {}
    for position, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise CatalogError("expected [[model]] tables", file=file, field="model")
        model = _model(entry, file=file, position=position, verified_on=verified_on)
        if model.id in models:
            raise CatalogError("is described twice in this file", file=file, model=model.id)
        models[model.id] = model
    return list(models.values())


def _model(entry: Mapping[str, Any], *, file: str, position: int, verified_on: date | None) -> Model:
    given = entry.get("id")
    label = given if isinstance(given, str) and given else f"number {position}"
    card = _Table(entry, file=file, model=label)
    model_id = card.string("id")
    if not model_id:
        raise card.error("id", "is required")
    endpoint = card.choice("endpoint", Endpoint.CHAT)
    chats = endpoint is Endpoint.CHAT
    name = card.string("name", model_id)
    family = card.string("family")
    model = Model(
        id=model_id,
        name=name,
        card_title=card.string("card_title", model_id),
        family=family,
        owned_by=card.string("owned_by", family.lower() or "unknown"),
        description=card.string("description"),
        description_zh=card.string("description_zh"),
        endpoint=endpoint,
        context_length=card.count("context_length"),
        input_modalities=card.strings("input_modalities", ("text",), among=_MODALITIES),
        output_modalities=card.strings("output_modalities", ("text",), among=_MODALITIES),
        tokenizer=card.string("tokenizer", "GPT"),
        stability=card.string("stability", "experimental"),
        json_output=card.boolean("json_output", chats),
        structured_outputs=card.boolean("structured_outputs", chats),
        tools=card.boolean("tools", chats),
        extra_parameters=card.strings("extra_parameters"),
        max_images=card.count("max_images"),
        max_characters=card.count("max_characters"),
        thinking=_thinking(card.table("thinking")),
        messages=_message_rules(card.table("messages")),
        usage=_usage_shape(card.table("usage")),
        notes=card.strings("notes"),
        notes_zh=card.strings("notes_zh"),
        unverified=card.strings("unverified"),
        unverified_zh=card.strings("unverified_zh"),
        verified_on=card.day("verified_on", verified_on),
    )
    card.finish()
    return model


def _thinking(table: _Table) -> Thinking:
    efforts = table.strings("efforts", among=EFFORTS)
    default_effort = table.string("default_effort") or None
    if default_effort is not None and default_effort not in efforts:
        known = ", ".join(efforts) or "none listed"
        raise table.error("default_effort", f"{_shown(default_effort)} is not among the efforts ({known})")
    thinking = Thinking(
        by_default=table.boolean("by_default", False),
        switch=table.choice("switch", Switch.REASONING_EFFORT if efforts else Switch.NONE),
        efforts=efforts,
        default_effort=default_effort,
        rejection=table.rejection("rejection"),
        efforts_verified=table.boolean("efforts_verified", True),
    )
    table.finish()
    if thinking.switch is Switch.REASONING_EFFORT and not efforts:
        raise table.error("efforts", "is required where reasoning_effort is the switch")
    if thinking.by_default and thinking.switch is Switch.NONE:
        raise table.error("by_default", 'cannot be true with switch "none"')
    return thinking


def _message_rules(table: _Table) -> MessageRules:
    rules = MessageRules(
        system=table.choice("system", SystemPlacement.ANYWHERE),
        developer=table.choice("developer", Developer.UNVERIFIED),
        system_rejection=table.rejection("system_rejection"),
        developer_rejection=table.rejection("developer_rejection"),
    )
    table.finish()
    if (rules.developer is Developer.REJECTED) != (rules.developer_rejection is not None):
        raise table.error("developer_rejection", 'goes with developer = "rejected", and only with it')
    if rules.system_rejection and not rules.single_system_first:
        raise table.error("system_rejection", 'does not go with system = "anywhere"')
    return rules


def _usage_shape(table: _Table) -> UsageShape:
    shape = UsageShape(
        reasoning_tokens=table.choice("reasoning_tokens", ReasoningTokens.UNVERIFIED),
        top_level_reasoning_tokens=table.fact("top_level_reasoning_tokens"),
        image_tokens=table.choice("image_tokens", ImageTokens.UNVERIFIED),
        image_sample=table.count("image_sample"),
    )
    table.finish()
    return shape
