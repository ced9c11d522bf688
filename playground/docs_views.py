"""/docs/: how to use the API, from the catalog, settings and rate card that the gateway itself goes by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.conf import settings as site
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET

from accounts.access import public
from gateway.catalog import Developer, Model, Switch
from gateway.runtime import runtime
from playground.code_examples import Example
from playground.docs_examples import docs_examples
from playground.docs_tables import error_rows, limit_rows, rate_meters, rate_rows
from playground.model_facts import OFTEN_SENT


class Page(NamedTuple):
    slug: str
    title: Promise
    lead: Promise
    examples: Sequence[str] = ()

    @property
    def template(self) -> str:
        return f"playground/docs/{self.slug.replace('-', '_')}.html"


PAGES = (
    Page(
        "quick-start",
        _("Quick start"),
        _("From nothing to the first answer, with the client you already use."),
        ("first", "models"),
    ),
    Page("authentication", _("Authentication"), _("One key in one header."), ("me", "x-api-key")),
    Page("thinking", _("Thinking"), _("Whether a model thinks, how long, and what it costs."), ("thinking",)),
    Page("streaming", _("Streaming"), _("Answers as they are written."), ("stream",)),
    Page("portable", _("Portable mode"), _("One request for every model."), ("portable",)),
    Page("limits", _("Limits"), _("How much at a time, and what to do when it is too much."), ("headers", "waiting")),
    Page("errors", _("Errors"), _("What each status means, and what to do about it."), ("refused",)),
    Page("billing", _("Billing rules"), _("How a request becomes points, to the last digit."), ("usage",)),
)


@public
@require_GET
def docs(request: HttpRequest) -> HttpResponse:
    return render(request, "playground/docs/index.html", {"pages": PAGES})


@public
@require_GET
def docs_page(request: HttpRequest, slug: str) -> HttpResponse:
    place = next((place for place, page in enumerate(PAGES) if page.slug == slug), None)
    if place is None:
        raise Http404
    page, models = PAGES[place], _models()
    code = _examples(models)
    following = PAGES[place + 1] if place + 1 < len(PAGES) else None
    context: dict[str, Any] = {
        "pages": PAGES,
        "page": page,
        "following": following,
        "site_url": site.SITE_URL,
        "chat_models": [model for model in models if model.is_chat],
        "often_sent": OFTEN_SENT,
        "code": {name.replace("-", "_"): code[name] for name in page.examples},
    }
    return render(request, page.template, context | _tables(slug, models))


def _tables(slug: str, models: Sequence[Model]) -> dict[str, Any]:
    if slug == "errors":
        return {"errors": error_rows()}
    if slug == "limits":
        return {"limits": limit_rows()}
    return {"meters": rate_meters(), "rates": rate_rows(models)} if slug == "billing" else {}


def _models() -> list[Model]:
    """Those that are served, then the catalog's others: an example should run as it stands."""
    served = {model.id: model for model in runtime().upstreams.models()}
    return list((served | {id: one for id, one in runtime().catalog.items() if id not in served}).values())


def _examples(models: Sequence[Model]) -> Mapping[str, list[Example]]:
    chat = [model for model in models if model.is_chat]

    def first(fits: Callable[[Model], bool]) -> str:
        return next((model.id for model in chat if fits(model)), chat[0].id if chat else "model")

    return docs_examples(
        site=site.SITE_URL,
        model=first(lambda model: True),
        thinker=first(lambda model: model.thinking.switch is Switch.REASONING_EFFORT and "low" in model.efforts),
        strict=first(lambda model: model.messages.developer is Developer.REJECTED and "high" not in model.efforts),
    )
