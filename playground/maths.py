"""LaTeX in Markdown: `$…$`, `$$…$$`, `\\(…\\)`, `\\[…\\]`, turned into MathML.

A display block, once begun, stays one block whatever is inside it, so that text which
is still growing is cut into the same blocks as the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.dollarmath.index import math_inline_dollar

if TYPE_CHECKING:
    from markdown_it.renderer import RendererProtocol
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

MAX_LATEX_LENGTH = 4_000
# Deeper groups end in a recursion error inside the converter; nobody writes them.
MAX_LATEX_DEPTH = 40
BLOCK_MARKERS = {"$$": "$$", "\\[": "\\]"}
INLINE_MARKERS = {"\\(": "\\)", "\\[": "\\]"}
# Environments the converter does not know, by the nearest one it does.
ENVIRONMENTS = {
    "aligned": "align*",
    "alignedat": "align*",
    "gathered": "matrix",
    "gather": "matrix",
    "gather*": "matrix",
}
ENVIRONMENT = re.compile(r"\\(begin|end)\{(\w+\*?)\}")


def mathml(latex: str, *, display: bool) -> str | None:
    """MathML of a formula, or None where it isn't one."""
    if len(latex) > MAX_LATEX_LENGTH or latex.count("{") > MAX_LATEX_LENGTH // 4 or _depth(latex) > MAX_LATEX_DEPTH:
        return None
    latex = ENVIRONMENT.sub(_known_environment, latex)
    try:
        return str(convert(latex, display="block" if display else "inline"))
    except Exception:  # noqa: BLE001  the converter raises whatever its parser stumbles on
        return None


def _known_environment(match: re.Match[str]) -> str:
    if match[2] in {"equation", "equation*"}:
        return ""
    return f"\\{match[1]}{{{ENVIRONMENTS.get(match[2], match[2])}}}"


def _depth(latex: str) -> int:
    depth = deepest = 0
    for character in latex:
        depth += (character == "{") - (character == "}")
        deepest = max(deepest, depth)
    # \left and \frac nest without braces.
    return max(deepest, latex.count("\\left"), latex.count("^") // 8)


def maths_plugin(md: MarkdownIt) -> None:
    md.inline.ruler.before("escape", "math_inline", math_inline_dollar(False, False, True))
    md.inline.ruler.before("escape", "math_brackets", _inline_brackets)
    md.block.ruler.before("fence", "math_block", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    md.add_render_rule("math_inline", _render_inline)
    md.add_render_rule("math_inline_double", _render_inline_display)
    md.add_render_rule("math_block", _render_block)


def _inline_brackets(state: StateInline, silent: bool) -> bool:
    opening = state.src[state.pos : state.pos + 2]
    closing = INLINE_MARKERS.get(opening)
    if closing is None:
        return False
    end = state.src.find(closing, state.pos + 2, state.posMax)
    if end < 0 or not state.src[state.pos + 2 : end].strip():
        return False
    if not silent:
        token = state.push("math_inline" if opening == "\\(" else "math_inline_double", "math", 0)
        token.content = state.src[state.pos + 2 : end]
        token.markup = opening
    state.pos = end + 2
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()


def _block(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    first = _line(state, start_line)
    closing = BLOCK_MARKERS.get(first[:2])
    if closing is None or state.is_code_block(start_line):
        return False
    rest = first[2:]
    one_line = rest.endswith(closing) and len(rest) > len(closing)
    if not one_line and closing in rest:
        return False  # `$$x$$ and more`: a paragraph with a formula in it
    if silent:
        return True
    last = start_line if one_line else _closing_line(state, start_line, end_line, closing)
    _push_block(state, start_line, last, end_line, closing)
    return True


def _closing_line(state: StateBlock, start_line: int, end_line: int, closing: str) -> int | None:
    """The line that ends the block; None where a blank line or the end of the text comes first."""
    for number in range(start_line + 1, end_line):
        if state.isEmpty(number) or state.sCount[number] < state.blkIndent:
            return None
        if _line(state, number).endswith(closing):
            return number
    return None


def _push_block(state: StateBlock, start_line: int, last: int | None, end_line: int, closing: str) -> None:
    stop = last + 1 if last is not None else _open_end(state, start_line, end_line)
    source = state.getLines(start_line, stop, state.blkIndent, False).strip()
    token = state.push("math_block", "math", 0)
    token.block = True
    token.content = source[2 : -len(closing)].strip() if last is not None else source
    token.markup = closing if last is not None else ""
    token.map = [start_line, stop]
    state.line = stop


def _open_end(state: StateBlock, start_line: int, end_line: int) -> int:
    for number in range(start_line + 1, end_line):
        if state.isEmpty(number) or state.sCount[number] < state.blkIndent:
            return number
    return end_line


def _formula(token: Token, *, display: bool) -> str:
    markup = mathml(token.content.strip(), display=display)
    return markup or f'<code class="latex">{escapeHtml(token.content)}</code>'


def _render_inline(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    return _formula(tokens[index], display=False)


def _render_inline_display(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    return f'<span class="math-display">{_formula(tokens[index], display=True)}</span>'


def _render_block(
    self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[index]
    # Without its closing marker it is text: a formula that has not ended yet, or none at all.
    inner = _formula(token, display=True) if token.markup else escapeHtml(token.content)
    return f'<p class="{"math-display" if token.markup else "math-open"}">{inner}</p>\n'
