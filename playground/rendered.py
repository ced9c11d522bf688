"""The HTML of finished answers, kept compressed: a page makes none of it again, nor does the next process.

What another version of the renderer made is not used: `MAKER` is drawn from all that makes it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2s
from importlib.metadata import version
from pathlib import Path

from django.db import DatabaseError
from django.utils.safestring import SafeString

from playground import markdown, maths
from playground.models import RenderedTurn, Turn

logger = logging.getLogger(__name__)

MAKERS = ("markdown-it-py", "mdit-py-plugins", "latex2mathml", "Pygments", "nh3")
# Only these say no more; one that was cut off may yet go on.
FINAL = frozenset({Turn.State.DONE, Turn.State.STOPPED})


@dataclass(frozen=True, slots=True)
class Rendered:
    """As `markdown.neutral` makes it, for every language."""

    content: str
    reasoning: str

    @property
    def content_html(self) -> SafeString:
        return markdown.in_language(self.content)

    @property
    def reasoning_html(self) -> SafeString:
        return markdown.in_language(self.reasoning)


@cache
def maker() -> str:
    found = blake2s(digest_size=8)
    for module in (markdown, maths):
        found.update(Path(module.__file__ or "").read_bytes())
    for package in MAKERS:
        found.update(version(package).encode())
    return found.hexdigest()


def rendered(turns: Iterable[Turn]) -> dict[int, Rendered]:
    """Of the finished answers among them, by the turn's id; what was not kept is made, and kept."""
    wanted = {turn.pk: turn for turn in turns if turn.role == Turn.Role.ASSISTANT and turn.state in FINAL}
    found = {}
    for kept in RenderedTurn.objects.filter(turn_id__in=wanted, maker=maker()):
        found[kept.turn_id] = Rendered(_text(kept.content), _text(kept.reasoning))
    made = {
        pk: Rendered("" if turn.is_json else markdown.neutral(turn.content), markdown.neutral(turn.reasoning))
        for pk, turn in wanted.items()
        if pk not in found
    }
    keep(made)
    return found | made


def keep_whole(turn_id: int, made: Rendered) -> None:
    """What a reader of a stream has had in pieces, unless more of it may come."""
    if Turn.objects.filter(pk=turn_id, state__in=FINAL).exists():
        keep({turn_id: made})


def keep(made: Mapping[int, Rendered]) -> None:
    rows = [
        RenderedTurn(turn_id=pk, maker=maker(), content=_packed(one.content), reasoning=_packed(one.reasoning))
        for pk, one in made.items()
    ]
    if not rows:
        return
    fields = ["maker", "content", "reasoning"]
    try:
        RenderedTurn.objects.bulk_create(rows, update_conflicts=True, unique_fields=["turn"], update_fields=fields)
    except DatabaseError:
        # It is only kept to save work; the turn may have been deleted just now.
        logger.warning("rendered turns %s could not be kept", sorted(made), exc_info=True)


def _packed(html: str) -> bytes:
    return zlib.compress(html.encode(), 1)


def _text(packed: bytes | memoryview[int]) -> str:
    return zlib.decompress(packed).decode()
