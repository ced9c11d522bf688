"""The windows in which the chat is walked: two at a time that differ in everything, so each walk sees both of all.

The four pairs together are every combination of width, scheme and language.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import Open
from tests.browser.keyboard import Keyboard

type Window = dict[str, Any]
OTHER = {"light": "dark", "dark": "light", "en": "zh-hans", "zh-hans": "en"}


def _pair(scheme: str, language: str) -> tuple[Window, Window]:
    desk = {"width": 1440, "scheme": scheme, "language": language}
    telephone = {"width": 360, "height": 740, "scheme": OTHER[scheme], "language": OTHER[language]}
    return desk, telephone


PAIRS = [_pair(scheme, language) for scheme in ("light", "dark") for language in ("en", "zh-hans")]


def in_each_of(pair: int) -> pytest.MarkDecorator:
    """The walk is done twice, in one `window` and in the other."""
    return pytest.mark.parametrize("window", PAIRS[pair], ids=["desk", "telephone"])


def open_both(open_page: Open, path: str, *, pair: int, **options: Any) -> list[Keyboard]:
    """A person's desk and telephone at the same time."""
    return [Keyboard(open_page(path, owner=True, **window | options)) for window in PAIRS[pair]]
