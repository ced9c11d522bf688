"""What is sent from the chat: the settings beside it and the message, checked against the chosen model's card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from gateway.catalog import EFFORTS, Model
from playground.chat_request import Chosen
from playground.pictures import Picture, Unfit, read_pictures
from playground.tool_schema import parse_schema, parse_tools, pretty

MAX_MESSAGE_LENGTH = 400_000
MAX_JSON_LENGTH = 200_000
MAX_STOPS = 4


_BLIND = _("%(model)s reads text only. Take the pictures out, or choose a model that sees them.")


class SettingsForm(forms.Form):
    model = forms.CharField(max_length=200)
    system = forms.CharField(required=False, max_length=100_000)
    effort = forms.CharField(required=False, max_length=20)
    thinking = forms.BooleanField(required=False)
    portable = forms.BooleanField(required=False)
    temperature = forms.FloatField(required=False, min_value=0, max_value=2, label=_("Temperature"))
    top_p = forms.FloatField(required=False, min_value=0, max_value=1, label="top_p")
    max_tokens = forms.IntegerField(required=False, min_value=1, max_value=10_000_000, label=_("Max tokens"))
    presence_penalty = forms.FloatField(required=False, min_value=-2, max_value=2, label=_("Presence penalty"))
    frequency_penalty = forms.FloatField(required=False, min_value=-2, max_value=2, label=_("Frequency penalty"))
    stop = forms.CharField(required=False, max_length=2_000)
    format = forms.ChoiceField(required=False, choices=[(name, name) for name in ("", "json_object", "json_schema")])
    schema = forms.CharField(required=False, max_length=MAX_JSON_LENGTH)
    tools = forms.CharField(required=False, max_length=MAX_JSON_LENGTH)
    tool_choice = forms.ChoiceField(required=False, choices=[(name, name) for name in ("", "none", "required")])
    single_call = forms.BooleanField(required=False)

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

    def clean_stop(self) -> list[str]:
        stops = [line for line in self.cleaned_data["stop"].splitlines() if line.strip()]
        if len(stops) > MAX_STOPS:
            raise forms.ValidationError(_("At most four stop sequences, one a line."))
        return stops

    def clean_tools(self) -> list[dict[str, Any]]:
        return parse_tools(self.cleaned_data["tools"]) if self.cleaned_data["tools"] else []

    def clean_schema(self) -> dict[str, Any]:
        return parse_schema(self.cleaned_data["schema"]) if self.cleaned_data["schema"] else {}

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        model = self.models.get(data.get("model", ""))
        tiers = EFFORTS if data.get("portable") else model.efforts if model else ()
        if model and data.get("effort") and data["effort"] not in tiers:
            self.add_error("effort", _("This model does not take that effort."))
        if data.get("format") == "json_schema" and data.get("schema") == {}:
            self.add_error("schema", _("JSON schema: paste one, or choose another form of answer."))
        return data

    def settings(self) -> dict[str, Any]:
        """What is kept on the conversation: only what differs from saying nothing."""
        return {name: self.cleaned_data[name] for name in SETTINGS if _says_something(self.cleaned_data[name])}

    def chosen(self) -> Chosen:
        return Chosen(self.models[self.cleaned_data["model"]], self.settings())


def _says_something(value: Any) -> bool:
    # Not `in ("", None, False)`: a temperature of 0 equals False.
    return not (value is None or value is False or value in ("", [], {}))


SETTINGS = tuple(name for name in SettingsForm.base_fields if name != "model")


def as_typed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Kept settings as the fields beside the chat hold them."""
    typed = dict(settings)
    for name in ("tools", "schema"):
        if name in typed:
            typed[name] = pretty(typed[name])
    if "stop" in typed:
        typed["stop"] = "\n".join(typed["stop"])
    return typed


class MessageForm(SettingsForm):
    message = forms.CharField(required=False, strip=False, max_length=MAX_MESSAGE_LENGTH)
    conversation = forms.UUIDField(required=False)
    # The last turn that the page shows: the question follows it, whatever another tab shows by now.
    parent = forms.IntegerField(required=False)

    def clean_message(self) -> str:
        return clean_text(self.cleaned_data["message"])

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        self.pictures: list[Picture] = []
        try:
            self.pictures = read_pictures(self.files.getlist("images") if self.files else [])
        except Unfit as error:
            self.add_error(None, str(error))
        if not self.pictures and not self.errors and not data.get("message", "").strip():
            self.add_error("message", _("Write a message first."))
        for name in self.asked(data) if self.pictures else ():
            if not self.models[name].sees_images:
                self.add_error(None, _BLIND % {"model": name})
        return data

    def asked(self, data: dict[str, Any]) -> list[str]:
        """The models that the message goes to; none where they are in doubt."""
        return [data["model"]] if data.get("model") else []


def clean_text(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\x00", "")
