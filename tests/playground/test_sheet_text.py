"""A read page as HTML: Markdown, tables as document models write them, and nothing else of HTML."""

from __future__ import annotations

import pytest

from playground.sheet_text import sheet_html


def test_a_table_stays_a_table_between_markdown() -> None:
    html = sheet_html('# One\n\n<table><tr><td colspan="2">a <b>b</b></td></tr></table>\n\nTwo *three*')
    assert html.index("<h3>One</h3>") < html.index('<td colspan="2">a <b>b</b></td>') < html.index("<em>three</em>")
    assert '<div class="table-scroll" tabindex="0"><table>' in html


@pytest.mark.parametrize(
    "hostile",
    [
        "<table><tr><td><script>alert(1)</script></td></tr></table>",
        '<table onclick="alert(1)"><tr><td style="x" onmouseover="y">a</td></tr></table>',
        '<table><tr><td><img src="https://evil.example/x"><a href="javascript:alert(1)">a</a></td></tr></table>',
        "<table><tr><td><style>td{}</style><iframe src=x></iframe></td></tr></table>",
        "<TABLE><TR><TD>\u202eabc</TD></TR></TABLE>",
    ],
)
def test_nothing_but_cells_is_taken_of_a_table(hostile: str) -> None:
    html = sheet_html(hostile)
    for part in ("script", "onclick", "onmouseover", "style", "<img", "<a", "iframe", "\u202e", "alert"):
        assert part not in html.replace('class="table-scroll"', ""), part
    assert "<td>" in html


def test_html_outside_of_tables_stays_text() -> None:
    assert "<b>" not in sheet_html("<b>bold</b>\n\n<table><tr><td>a</td></tr></table>\n\n<i>x</i>")


def test_a_table_without_end_stays_text() -> None:
    assert "<table>" not in sheet_html("<table><tr><td>a")


def test_formulas_are_drawn() -> None:
    assert "<math" in sheet_html("$$\na+b\n$$")
