"""Django's templates, whose pages are freed as soon as they are sent.

The layers of a template's context refer to the context as it does to them, so whatever a page was made of would wait
for the garbage collector, and that holds up every stream of the process for as long as it looks through it.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template import TemplateDoesNotExist
from django.template.backends.django import DjangoTemplates, Template, reraise
from django.template.context import make_context
from django.utils.safestring import SafeString


class Templates(DjangoTemplates):
    def get_template(self, template_name: str) -> Template:
        return _Template(super().get_template(template_name).template, self)

    def from_string(self, template_code: str) -> Template:
        return _Template(super().from_string(template_code).template, self)


class _Template(Template):
    def render(self, context: dict[str, Any] | None = None, request: HttpRequest | None = None) -> SafeString:
        bound = make_context(context, request, autoescape=self.backend.engine.autoescape)
        try:
            return self.template.render(bound)
        except TemplateDoesNotExist as error:
            reraise(error, self.backend)
        finally:
            bound.dicts.clear()
