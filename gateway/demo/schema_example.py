"""Makes a document that fits a JSON schema, out of what stands in the prompt where it can.

Covers what tools and structured outputs use: types, enum, const, default, examples,
properties, items, $ref, anyOf / oneOf / allOf, lengths, bounds and formats. A `pattern`
is not solved.
"""

from dataclasses import dataclass
from typing import Any

from gateway.demo.subject import Subject

# Schemas may refer to themselves; below this depth optional properties are left out.
_DEPTH = 6
_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T09:00:00Z",
    "time": "09:00:00Z",
    "email": "demo@example.com",
    "uri": "https://example.com/demo",
    "url": "https://example.com/demo",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
}
_PLACES = ("city", "location", "place", "country", "town", "address", "destination", "origin", "name", "person")
_WHOLE_PROMPTS = ("query", "question", "text", "prompt", "message", "content", "input", "search", "summary")


def example(schema: Any, *, subject: Subject) -> Any:
    root = schema if isinstance(schema, dict) else {}
    return _Maker(root=root, subject=subject).make(root, name="", depth=0)


@dataclass(frozen=True, slots=True)
class _Maker:
    root: dict[str, Any]
    subject: Subject

    def make(self, schema: Any, *, name: str, depth: int) -> Any:
        if not isinstance(schema, dict):
            return None if schema is False else self.subject.topic
        schema = self._resolved(schema, depth=depth)
        for given in ("const", "default"):
            if given in schema:
                return schema[given]
        for listed in ("enum", "examples"):
            if schema.get(listed):
                return self._mentioned(schema[listed])
        return self._of_type(schema, name=name, depth=depth)

    def _of_type(self, schema: dict[str, Any], *, name: str, depth: int) -> Any:
        match _type_of(schema):
            case "object":
                return self._object(schema, depth=depth)
            case "array":
                return self._array(schema, name=name, depth=depth)
            case "integer" | "number" as kind:
                return self._number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return self._string(schema, name=name)

    def _resolved(self, schema: dict[str, Any], *, depth: int) -> dict[str, Any]:
        """References followed, the first alternative taken, allOf merged."""
        for _ in range(_DEPTH * 2):
            if isinstance(schema.get("$ref"), str):
                schema = self._target(schema["$ref"])
            elif alternatives := schema.get("anyOf") or schema.get("oneOf"):
                # Deep down the way out of a recursion is usually the null alternative.
                ordered = sorted(alternatives, key=lambda one: (one == {"type": "null"}) is (depth < _DEPTH))
                rest = {key: value for key, value in schema.items() if key not in ("anyOf", "oneOf")}
                schema = {**rest, **ordered[0]} if isinstance(ordered[0], dict) else rest
            elif parts := schema.get("allOf"):
                rest = {key: value for key, value in schema.items() if key != "allOf"}
                schema = _merged([rest, *(self._resolved(part, depth=depth) for part in parts)])
            else:
                break
        return schema

    def _target(self, reference: str) -> dict[str, Any]:
        found: Any = self.root
        for step in reference.removeprefix("#").split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def _object(self, schema: dict[str, Any], *, depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = schema.get("required") or []
        wanted = [key for key in properties if depth < _DEPTH or key in required]
        wanted += [key for key in required if key not in properties]
        return {key: self.make(properties.get(key, {}), name=key, depth=depth + 1) for key in wanted}

    def _array(self, schema: dict[str, Any], *, name: str, depth: int) -> list[Any]:
        fixed = schema.get("prefixItems") or []
        items = [self.make(part, name=name, depth=depth + 1) for part in fixed]
        fewest = schema.get("minItems", 0 if depth >= _DEPTH else 1)
        wanted = min(max(fewest, len(items)), schema.get("maxItems", max(fewest, len(items), 1)))
        while len(items) < wanted:
            item = self.make(schema.get("items", {}), name=name.removesuffix("s"), depth=depth + 1)
            items.append(item)
        return items[:wanted]

    def _number(self, schema: dict[str, Any], *, whole: bool) -> int | float:
        step = schema.get("multipleOf") or (1 if whole else None)
        low, high = _bounds(schema, step=step)
        found = [float(text) for text in self.subject.numbers]
        fitting = [value for value in found if low <= value <= high and not (step and value % step)]
        value = fitting[0] if fitting else min(max(1.0, low), high)
        if step and value % step:
            value = -(-value // step) * step
        return int(value) if whole or value == int(value) else value

    def _string(self, schema: dict[str, Any], *, name: str) -> str:
        text = _FORMATS.get(schema.get("format", "")) or self._worded(name.lower())
        shortest, longest = schema.get("minLength", 0), schema.get("maxLength")
        if len(text) < shortest:
            text = (text + " demo" * shortest)[:shortest]
        return text if longest is None else text[:longest]

    def _worded(self, name: str) -> str:
        subject = self.subject
        if "date" in name:
            return _FORMATS["date"]
        if "mail" in name:
            return _FORMATS["email"]
        if any(word in name for word in _WHOLE_PROMPTS):
            return subject.text.strip()[:200] or subject.topic
        if any(word in name for word in _PLACES):
            return (subject.names or subject.key_words[-1:] or ("Beijing",))[0]
        return (subject.key_words or (subject.topic,))[0]

    def _mentioned(self, values: list[Any]) -> Any:
        """The listed value that the prompt names, else the first."""
        lowered = self.subject.text.lower()
        return next((value for value in values if isinstance(value, str) and value.lower() in lowered), values[0])


def _bounds(schema: dict[str, Any], *, step: float | None) -> tuple[float, float]:
    """Lowest and highest allowed value, both inclusive; an open end is moved inwards."""
    low = schema.get("minimum", schema.get("exclusiveMinimum", float("-inf")))
    high = schema.get("maximum", schema.get("exclusiveMaximum", float("inf")))
    inwards = step or min(high - low, 2) / 4
    return low + inwards * ("exclusiveMinimum" in schema), high - inwards * ("exclusiveMaximum" in schema)


def _type_of(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema else "array" if "items" in schema else "string"
    return str(kind)


def _merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in parts:
        properties = {**whole.get("properties", {}), **part.get("properties", {})}
        required = [*whole.get("required", []), *part.get("required", [])]
        whole.update(part)
        if properties:
            whole["properties"] = properties
        if required:
            whole["required"] = list(dict.fromkeys(required))
    return whole
