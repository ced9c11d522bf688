"""What a chat is sent with: the settings beside it, checked against the chosen model's card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.catalog import Model, Switch

MAX_MESSAGE_LENGTH = 400_000


class SettingsForm(forms.Form):
    model = forms.CharField(max_length=200)
    system = forms.CharField(required=False, max_length=100_000)
    effort = forms.CharField(required=False, max_length=20)
    thinking = forms.BooleanField(required=False)
    temperature = forms.FloatField(required=False, min_value=0, max_value=2)
    top_p = forms.FloatField(required=False, min_value=0, max_value=1)
    max_tokens = forms.IntegerField(required=False, min_value=1, max_value=10_000_000)

    def __init__(self, *args: Any, models: list[Model], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.models = {model.id: model for model in models}

    def clean_model(self) -> str:
        model: str = self.cleaned_data["model"]
        if model not in self.models:
            raise forms.ValidationError(
                _("%(model)s cannot be used at the moment. Choose another model."), params={"model": model}
            )
        return model

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        model = self.models.get(data.get("model", ""))
        if model and data.get("effort") and data["effort"] not in model.efforts:
            self.add_error("effort", _("This model does not take that effort."))
        return data

    def settings(self) -> dict[str, Any]:
        """What is kept on the conversation: only what differs from saying nothing."""
        values = {name: value for name, value in self.cleaned_data.items() if name in SETTINGS}
        # Not `in ("", None, False)`: a temperature of 0 equals False.
        return {name: value for name, value in values.items() if not (value is None or value is False or value == "")}


SETTINGS = ("system", "effort", "thinking", "temperature", "top_p", "max_tokens")


class MessageForm(SettingsForm):
    message = forms.CharField(strip=False, max_length=MAX_MESSAGE_LENGTH)
    conversation = forms.UUIDField(required=False)

    def clean_message(self) -> str:
        message: str = self.cleaned_data["message"].replace("\r\n", "\n").replace("\x00", "")
        if not message.strip():
            raise forms.ValidationError(_("Write a message first."))
        return message


@dataclass(frozen=True, slots=True)
class Effort:
    """One choice of the effort picker; an empty value sends nothing."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class ThinkingControl:
    """The one control of thinking that a model has: tiers, a switch, or none and why."""

    efforts: tuple[Effort, ...] = ()
    switch: bool = False
    reason: str | Promise = ""


def thinking_control(model: Model) -> ThinkingControl:
    switch = model.thinking.switch
    if switch is Switch.REASONING_EFFORT and model.efforts:
        return ThinkingControl(
            efforts=(Effort("", _default_label(model)), *(Effort(tier, tier) for tier in model.efforts))
        )
    if switch is Switch.ENABLE_THINKING:
        return ThinkingControl(switch=True)
    if switch is Switch.ALWAYS_ON:
        return ThinkingControl(
            reason=_(
                "This model always thinks, about equally long: it accepts the effort tiers and does not act on them."
            )
        )
    return ThinkingControl(reason=_("This model answers directly. It has no separate thinking to set."))


def _default_label(model: Model) -> str:
    if not model.known:
        return gettext("Model's default")
    if model.default_effort:
        return gettext("Default (%s)") % model.default_effort
    return gettext("Default (thinks)") if model.thinks_by_default else gettext("Default (does not think)")


def request_body(*, model: Model, settings: dict[str, Any], messages: list[dict[str, str]]) -> dict[str, Any]:
    """The chat completion request these settings stand for."""
    system = settings.get("system", "").strip()
    opening = [{"role": "system", "content": system}] if system else []
    body: dict[str, Any] = {"model": model.id, "messages": opening + messages, "stream": True}
    body |= {name: settings[name] for name in ("temperature", "top_p", "max_tokens") if name in settings}
    if settings.get("effort") in model.efforts:
        body["reasoning_effort"] = settings["effort"]
    if settings.get("thinking") and model.thinking.switch is Switch.ENABLE_THINKING:
        body["chat_template_kwargs"] = {"enable_thinking": True}
    return body
