"""What is sent from the compare page: a message, common settings, and the models it goes to."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from playground.chat_request import Chosen
from playground.settings_form import MessageForm

MODELS_AT_LEAST, MODELS_AT_MOST = 2, 4


class ComparisonForm(MessageForm):
    """Always in portable mode: one set of settings goes to models that take different ones."""

    model = forms.CharField(required=False)

    def clean_model(self) -> str:
        self.names: list[str] = [name for name in dict.fromkeys(cast(QueryDict, self.data).getlist("model")) if name]
        if not MODELS_AT_LEAST <= len(self.names) <= MODELS_AT_MOST:
            raise forms.ValidationError(_("Choose two to four different models."))
        for name in self.names:
            if name not in self.models:
                raise forms.ValidationError(
                    _("%(model)s cannot be used at the moment. Choose another model."), params={"model": name}
                )
        return self.names[0]

    def clean_portable(self) -> bool:
        return True

    def asked(self, data: dict[str, Any]) -> list[str]:
        return self.names if data.get("model") else []

    def all_chosen(self) -> list[Chosen]:
        return [Chosen(self.models[name], self.settings()) for name in self.names]
