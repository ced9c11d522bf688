"""`{% lucide %}` with each icon drawn once a process.

The package copies and writes an XML tree at every use; a page of the chat has hundreds of icons, and that was a
third of its time.
"""

from __future__ import annotations

from functools import lru_cache

from django import template
from django.utils.safestring import SafeString
from lucide.templatetags.lucide import lucide as drawn

register = template.Library()


@register.simple_tag
def lucide(name: str, *, size: int | None = 24, **attributes: object) -> SafeString:
    return _icon(name, size, tuple(attributes.items()))


@lru_cache(maxsize=512)
def _icon(name: str, size: int | None, attributes: tuple[tuple[str, object], ...]) -> SafeString:
    return SafeString(drawn(name, size=size, **dict(attributes)))
