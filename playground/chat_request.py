"""The request that a chat is sent as: the chosen model and settings, as far as this model takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.catalog import EFFORTS, Model, Switch
from gateway.portable import adapt

type Json = dict[str, Any]

PLAIN = ("temperature", "top_p", "max_tokens", "presence_penalty", "frequency_penalty")
# One HTTP request may have 20 MiB; what the chat sends must be possible as code, too.
MAX_BODY_BYTES = 20 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which model is asked, and with which settings. They may hold what another model takes: it is not sent."""

    model: Model
    settings: Json

    @property
    def portable(self) -> bool:
        return bool(self.settings.get("portable"))

    @property
    def is_json(self) -> bool:
        return bool(self._response_format())

    def body(self, messages: list[Json]) -> Json:
        system = self.settings.get("system", "").strip()
        opening = [{"role": "system", "content": system}] if system else []
        body: Json = {"model": self.model.id, "messages": opening + messages, "stream": True}
        body |= {name: self.settings[name] for name in PLAIN if name in self.settings}
        if self.settings.get("stop") and "stop" in self.model.extra_parameters:
            body["stop"] = self.settings["stop"]
        return body | self._thinking() | self._response_format() | self._tools()

    def adapted(self, body: Json) -> list[str]:
        """What portable mode will change of it, in its own short words."""
        return adapt(body, self.model)[1] if self.portable else []

    def _thinking(self) -> Json:
        effort = self.settings.get("effort")
        if effort in self.model.efforts or (self.portable and effort in EFFORTS):
            return {"reasoning_effort": effort}
        if self.settings.get("thinking") and self.model.thinking.switch is Switch.ENABLE_THINKING:
            return {"chat_template_kwargs": {"enable_thinking": True}}
        return {}

    def _response_format(self) -> Json:
        match self.settings.get("format"):
            case "json_object" if self.model.json_output:
                return {"response_format": {"type": "json_object"}}
            case "json_schema" if self.model.structured_outputs and "schema" in self.settings:
                return {"response_format": {"type": "json_schema", "json_schema": self.settings["schema"]}}
        return {}

    def _tools(self) -> Json:
        if not self.settings.get("tools") or not self.model.tools:
            return {}
        choice = self.settings.get("tool_choice")
        single = {"parallel_tool_calls": False} if self.settings.get("single_call") else {}
        return {"tools": self.settings["tools"], **({"tool_choice": choice} if choice else {}), **single}
