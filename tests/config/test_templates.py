"""What a page was made of goes with the page."""

from __future__ import annotations

import gc
import weakref

import pytest
from django.http import HttpRequest
from django.template import TemplateDoesNotExist, engines
from django.template.loader import get_template, render_to_string


class Shown:
    def __str__(self) -> str:
        return "shown"


def test_a_page_leaves_nothing_to_the_garbage_collector() -> None:
    shown = Shown()
    gone = weakref.ref(shown)
    gc.disable()
    try:
        html = render_to_string("404.html", {"shown": shown}, HttpRequest())
        assert "<html" in html
        del shown
        assert gone() is None
    finally:
        gc.enable()


def test_templates_in_a_string_and_those_that_are_missing_are_djangos() -> None:
    assert engines["django"].from_string("{{ shown }}").render({"shown": Shown()}) == "shown"
    with pytest.raises(TemplateDoesNotExist):
        get_template("no/such.html")
    with pytest.raises(TemplateDoesNotExist, match=r"no/such\.html"):
        engines["django"].from_string("{% include 'no/such.html' %}").render({})
