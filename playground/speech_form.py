"""What a text is to be spoken with, checked in the reader's language before the model is asked."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from gateway.speech_schema import CONTENT_TYPES, MAX_CHARACTERS
from playground.offers import Offer, chosen_of

# One in each language of the site, and one whose characters are counted as code points.
SAMPLES = (
    (_("English"), "Good morning. The build is green, and three pages were read overnight."),
    (_("Chinese"), "早上好。构建已经通过，昨晚读完了三页文档。"),
    (_("Numbers"), "Flight 305 leaves at 18:40 from gate B7. The fare is €129.90."),
)


class SpeechForm(forms.Form):
    text = forms.CharField(strip=False, error_messages={"required": _("Write a text first.")})
    model = forms.CharField(required=False, max_length=200)
    voice = forms.CharField(required=False, max_length=200)
    response_format = forms.ChoiceField(required=False, choices=[(name, name.upper()) for name in CONTENT_TYPES])
    speed = forms.FloatField(
        required=False,
        min_value=0.25,
        max_value=4,
        error_messages=dict.fromkeys(("invalid", "min_value", "max_value"), _("Speed is a number from 0.25 to 4.")),
    )
    instructions = forms.CharField(required=False, max_length=4_000)

    def __init__(self, *args: Any, offers: list[Offer], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offers = offers

    def clean_text(self) -> str:
        # Browsers send line ends as two characters, and show and count them as one.
        text: str = self.cleaned_data["text"].replace("\r\n", "\n").replace("\x00", "")
        if not text.strip():
            raise forms.ValidationError(_("Write a text first."))
        return text

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        offer = next((offer for offer in self.offers if offer.model.id == data.get("model")), None)
        if offer is None and not data.get("model"):
            offer = chosen_of(self.offers, "")
        if offer is None:
            self.add_error("model", _("This model cannot be used at the moment. Choose another one."))
            return data
        data["model"] = offer.model.id
        limit, length = offer.model.max_characters or MAX_CHARACTERS, len(data.get("text", ""))
        if length > limit:
            text = _("The text has %(length)s characters; %(limit)s are the most.")
            self.add_error("text", text % {"length": f"{length:,}", "limit": f"{limit:,}"})
        return data

    def body(self) -> dict[str, Any]:
        """The request: only what differs from saying nothing."""
        data = self.cleaned_data
        body: dict[str, Any] = {"model": data["model"], "input": data["text"]}
        if data["speed"] not in (None, 1):
            body["speed"] = data["speed"]
        return body | {name: data[name] for name in ("voice", "response_format", "instructions") if data[name]}

    def sample_body(self) -> dict[str, Any]:
        """A request to show where the form makes none yet."""
        chosen = chosen_of(self.offers, str(self.data.get("model", "")))
        return {"model": chosen.model.id if chosen else "OmniVoice", "input": str(SAMPLES[0][1])}

    def first_error(self) -> str:
        errors = [str(error) for errors in self.errors.values() for error in errors]
        return errors[0] if errors else gettext("Something in the form is not right.")
