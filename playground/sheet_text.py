"""A read page's text as HTML: Markdown as everywhere, and tables as document models write them.

Model servers give tables as HTML inside the Markdown, for merged cells. Nothing else of HTML is taken, and of tables
only their cells.
"""

from __future__ import annotations

import re

import nh3
from django.utils.safestring import SafeString, mark_safe

from playground.markdown import UNSEEN, render

TABLE = re.compile(r"<table\b.*?</table\s*>", re.DOTALL | re.IGNORECASE)
CLEANER = nh3.Cleaner(
    tags={
        "table",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "th",
        "td",
        "caption",
        "br",
        "sub",
        "sup",
        "b",
        "i",
        "strong",
        "em",
    },
    attributes={"td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan"}},
    clean_content_tags={"script", "style"},
)


def sheet_html(markdown: str) -> SafeString:
    parts = []
    at = 0
    for table in TABLE.finditer(markdown):
        parts += [render(markdown[at : table.start()]), _table(table[0])]
        at = table.end()
    parts.append(render(markdown[at:]))
    return mark_safe("".join(parts))  # noqa: S308 -- each part is clean


def _table(html: str) -> str:
    return f'<div class="table-scroll" tabindex="0">{CLEANER.clean(UNSEEN.sub("", html))}</div>'
