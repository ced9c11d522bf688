"""Text that grows: its finished blocks and its tail are what the whole text would be."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playground import markdown
from playground.markdown import BlockRenderer, render

LINES = st.sampled_from(
    [
        "", "", "", "word", "# heading", "## heading", "===", "---", "***", "- item", "* item", "  - nested",
        "  more", "    four", "1. one", "2) two", "> quote", ">", "> - both", "```", "```python", "~~~", "    code",
        "| a | b |", "|---|--:|", "| 1 | 2 |", "a | b", "--|--", "$$", "$$x$$", "$$x$$ and", "\\[", "\\]", "x + y",
        "+ c", "**bold** `code`", "**open", "`open", "[text](https://e.example)", "<b>", "&amp;", "\\", "text  ",
        "\ttab", "$x$ and $5", "中文。", "- [ ] task", "* * *", "-", "1.",
    ]
)  # fmt: skip


@st.composite
def document_and_cuts(draw: st.DrawFn) -> tuple[str, list[int]]:
    text = "\n".join(draw(st.lists(LINES, max_size=14)))
    cuts = draw(st.lists(st.integers(0, len(text)), max_size=10))
    return text, sorted({0, *cuts, len(text)})


def grown(text: str, cuts: list[int]) -> str:
    renderer = BlockRenderer()
    blocks: list[str] = []
    for start, end in pairwise(cuts):
        blocks += renderer.feed(text[start:end])
        renderer.tail()
    return "".join(blocks) + renderer.finish()


@settings(max_examples=200, deadline=None)
@given(document_and_cuts())
@example(("p\na | b\n--|--x", [0, 13, 14]))
@example(("- a\n---\n-- x", [0, 6, 12]))
@example(("$$\nx\n+ y\n$$\nz", [0, 8, 14]))
@example(("a\r\n\r\nb", [0, 2, 3, 7]))
def test_growing_in_any_steps_gives_the_whole(document: tuple[str, list[int]]) -> None:
    text, cuts = document
    assert grown(text, [*range(len(text)), len(text)]) == render(text)
    assert grown(text, cuts) == render(text)


def test_a_finished_block_comes_once_and_a_growing_one_stays_in_the_tail() -> None:
    renderer = BlockRenderer()
    assert renderer.feed("first\n\nsec") == []
    assert renderer.tail() == "<p>first</p>\n<p>sec</p>\n"
    assert renderer.feed("ond\n") == ["<p>first</p>\n"]
    assert renderer.tail() == "<p>second</p>\n"


def test_a_link_defined_before_holds_in_later_blocks() -> None:
    text = "[docs]: https://e.example\n\none\n\nsee [docs]\n\nend"
    assert grown(text, [0, 30, 40, len(text)]) == render(text)


def test_a_link_defined_later_stays_text_in_a_block_finished_before() -> None:
    renderer = BlockRenderer()
    assert renderer.feed("see [docs]\n\nnext\n") == ["<p>see [docs]</p>\n"]
    assert renderer.feed("\n[docs]: https://e.example\n\n[docs]\n") == ["<p>next</p>\n"]
    assert 'href="https://e.example"' in renderer.finish()


def test_bold_and_code_that_have_begun_look_so_in_the_tail() -> None:
    renderer = BlockRenderer()
    renderer.feed("this is **bo")
    assert renderer.tail() == "<p>this is <strong>bo</strong></p>\n"
    renderer.feed("ld** and `co")
    assert renderer.tail() == "<p>this is <strong>bold</strong> and <code>co</code></p>\n"
    assert renderer.finish() == "<p>this is <strong>bold</strong> and `co</p>\n"


def test_stars_in_growing_code_are_left_alone() -> None:
    renderer = BlockRenderer()
    renderer.feed("```\na ** b")
    assert '<code class="highlight">a ** b</code>' in renderer.tail()


def test_work_for_an_update_is_bounded_by_the_last_block(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = markdown.PARSER.block.parse

    def measured(text: str, *rest: Any) -> Any:
        parsed.append(len(text))
        return parse(text, *rest)

    monkeypatch.setattr(markdown.PARSER.block, "parse", measured)
    renderer = BlockRenderer()
    for _ in range(500):
        renderer.feed("A paragraph of some length, and then the next.\n\n")
        renderer.tail()
    assert max(parsed) < 200
