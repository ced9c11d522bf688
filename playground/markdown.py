"""A model's Markdown as HTML that is safe to put into a page.

The text is hostile: no raw HTML, no images, no address that becomes a link by itself, and
an allow-list (nh3) over everything as the last step. `render` takes a whole text;
`BlockRenderer` takes text that grows and renders each finished block once.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import nh3
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from playground.maths import maths_plugin

if TYPE_CHECKING:
    from markdown_it.renderer import RendererProtocol
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

# Blocks nested deeper than this are left out; parsing them costs time and nobody can read them.
MAX_NESTING = 40
# Longer code stays plain: colouring it would cost more than it helps.
MAX_HIGHLIGHT_LENGTH = 60_000
# While it grows a block is rendered again and again, so plain sooner.
MAX_GROWING_HIGHLIGHT_LENGTH = 8_000
ALLOWED_SCHEMES = ("http://", "https://", "mailto:")

# Embeddings, overrides and isolates make code read otherwise than it runs. NUL and other
# controls have no place in HTML.
UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069\ufdd0-\ufdd2\ufff9-\ufffb]")
# What is rendered is for every language: where a word of ours belongs stands a code point that no text may have.
COPY, COPIED, IMAGE = "\ufdd0", "\ufdd1", "\ufdd2"

MATHML_TAGS = {
    "math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup",
    "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "none", "mtable", "mtr", "mtd", "mlabeledtr",
    "mstyle", "mpadded", "mphantom", "menclose", "mfenced", "merror",
}  # fmt: skip
MATHML_ATTRIBUTES = {
    "display", "mathvariant", "stretchy", "fence", "form", "separator", "lspace", "rspace", "linethickness", "accent",
    "accentunder", "largeop", "movablelimits", "symmetric", "minsize", "maxsize", "columnalign", "rowspacing",
    "columnspacing", "columnlines", "rowlines", "width", "height", "depth", "notation", "scriptlevel", "displaystyle",
    "open", "close", "separators", "mathsize",
}  # fmt: skip
PROSE_TAGS = {
    "p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "s", "blockquote", "ul", "ol", "li", "a", "code", "pre",
    "table", "thead", "tbody", "tr", "th", "td", "div", "span", "button",
}  # fmt: skip
CLEANER = nh3.Cleaner(
    tags=PROSE_TAGS | MATHML_TAGS,
    clean_content_tags={"script", "style"},
    attributes=dict.fromkeys(MATHML_TAGS, MATHML_ATTRIBUTES)
    | {
        "a": {"href", "title"},
        "ol": {"start"},
        "p": {"class"},
        "pre": {"tabindex"},
        "div": {"class", "tabindex"},
        "span": {"class"},
        "code": {"class"},
        "td": {"class"},
        "th": {"class"},
        "button": {"class", "type", "data-copy-code"},
    },
    set_tag_attribute_values={"a": {"target": "_blank"}},
    link_rel="noopener noreferrer nofollow",
    url_schemes={"http", "https", "mailto"},
    url_relative="deny",
)
FORMATTER = HtmlFormatter(nowrap=True)


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802  the parser's own name
        return url.lower().startswith(ALLOWED_SCHEMES)


def _parser() -> MarkdownIt:
    md = _Markdown("commonmark", {"html": False, "linkify": False, "typographer": False, "maxNesting": MAX_NESTING})
    md.enable(["table", "strikethrough"])
    md.disable(["html_block", "html_inline", "autolink"])
    md.use(maths_plugin)
    for name, rule in RULES.items():
        md.add_render_rule(name, rule)
    return md


def _code(source: str, info: str, *, growing: bool) -> str:
    language = info.split()[0] if info.split() else ""
    limit = MAX_GROWING_HIGHLIGHT_LENGTH if growing else MAX_HIGHLIGHT_LENGTH
    label, body = language, escapeHtml(source)
    lexer = _lexer(language)
    if lexer is not None:
        label = lexer.name
        if len(source) <= limit:
            body = highlight(source, lexer, FORMATTER)
    return (
        f'<div class="code"><div class="code-bar"><span>{escapeHtml(label[:40])}</span>'
        f'<button type="button" class="button button-quiet button-small" data-copy-code>'
        f'<span class="copy-note">{COPY}</span><span class="copied-note">{COPIED}</span></button></div>'
        f'<pre tabindex="0"><code class="highlight">{body}</code></pre></div>\n'
    )


def code_html(source: str, language: str) -> SafeString:
    """Code of our own, looking as it does in an answer."""
    return in_language(_code(UNSEEN.sub("", source), language, growing=False))  # escaped or made by Pygments


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any | None:
    if not language or len(language) > 40:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _fence(self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    return _code(tokens[index].content, tokens[index].info.strip(), growing=bool(env.get("growing")))


def _code_block(self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    return _code(tokens[index].content, "", growing=bool(env.get("growing")))


def _image(self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """The words of an image, and its address to read; fetching it would tell a stranger of this chat."""
    token = tokens[index]
    source = str(token.attrs.get("src", ""))
    text = escapeHtml(token.content) or IMAGE
    return f'<span class="image-text">{text}</span> <code>{escapeHtml(source[:300])}</code>'


def _heading(self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    # The page's own headings are levels 1 and 2.
    token = tokens[index]
    level = min(6, int(token.tag[1]) + 2)
    return f"<h{level}>" if token.nesting == 1 else f"</h{level}>\n"


def _table(self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    if tokens[index].nesting == 1:
        return '<div class="table-scroll" tabindex="0"><table>\n'
    return "</table></div>\n"


def _cell(self: RendererProtocol, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    side = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="align-{side}">' if side in {"left", "right", "center"} else f"<{token.tag}>"


RULES: dict[str, Any] = {
    "fence": _fence,
    "code_block": _code_block,
    "image": _image,
    "heading_open": _heading,
    "heading_close": _heading,
    "table_open": _table,
    "table_close": _table,
    "th_open": _cell,
    "td_open": _cell,
}
PARSER = _parser()


def _clean_text(text: str) -> str:
    return UNSEEN.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def _html(text: str, env: MutableMapping[str, Any]) -> str:
    return CLEANER.clean(PARSER.render(text, env))


def render(text: str) -> SafeString:
    """Safe HTML of a whole text, labels in the active language."""
    return in_language(neutral(text))


@lru_cache(maxsize=128)
def neutral(text: str) -> str:
    """The same for every language: `in_language` makes it ready to be shown."""
    return _html(_clean_text(text), {}) if text else ""


def in_language(html: str) -> SafeString:
    for place, word in ((COPY, gettext("Copy")), (COPIED, gettext("Copied")), (IMAGE, gettext("image"))):
        if place in html:
            html = html.replace(place, escapeHtml(word))
    return mark_safe(html)  # noqa: S308  nh3 was the last step


def _with_marks_closed(text: str) -> str:
    """Bold or code that has begun in the last line looks so at once, instead of showing its marks."""
    blocks = [token for token in PARSER.block.parse(text, PARSER, {}, []) or [] if token.map]
    # Of those that end the text the innermost comes last.
    last = max(reversed(blocks), key=_end, default=None)
    if last is None or last.type in {"fence", "code_block", "math_block"}:
        return text
    line = text[text.rfind("\n") + 1 :].rstrip()
    for mark in ("`", "**"):
        if line.count(mark) % 2:
            # A mark with nothing after it yet says nothing.
            return text.rstrip()[: -len(mark)] if line.endswith(mark) else text.rstrip() + mark
    return text


def _end(token: Token) -> int:
    return token.map[1] if token.map else 0


class BlockRenderer:
    """Markdown that grows: `feed` more of it and get the blocks that are now finished, `tail` is the rest.

    Work per call is bounded by the last block: what is finished is never parsed again. The blocks
    and the tail together are what `render` makes of the whole text, except that a link
    whose target is defined further down stays text in a block that was finished before it.
    """

    def __init__(self) -> None:
        self._tail = ""
        self._pending_cr = False
        self._references: dict[str, Any] = {}
        self._made: list[str] = []

    @property
    def whole(self) -> str | None:
        """What `neutral` makes of the whole text, once it is finished; None where a late link may make a difference."""
        return None if self._references else "".join(self._made)

    def feed(self, text: str) -> list[str]:
        """HTML of each block that `text` has finished, in order."""
        text = self._joined(text)
        self._tail += text
        if "\n" not in text:
            return []
        # A line still being written can change what the one before it means.
        whole_lines = self._tail[: self._tail.rindex("\n") + 1]
        cut = self._finished_length(whole_lines)
        if not cut:
            return []
        finished, self._tail = self._tail[:cut], self._tail[cut:]
        self._made.append(_html(finished, {"references": self._references}))
        return [in_language(self._made[-1])]

    def tail(self) -> str:
        """HTML of what is still growing."""
        return in_language(self._rendered(_with_marks_closed(self._tail), growing=True))

    def finish(self) -> str:
        """HTML of the last block, once no more text comes."""
        self._made.append(self._rendered(self._tail, growing=False))
        return in_language(self._made[-1])

    def _rendered(self, text: str, *, growing: bool) -> str:
        if not text.strip():
            return ""
        # A definition in the tail may still grow: it is kept only once its block is finished.
        return _html(text, {"references": dict(self._references), "growing": growing})

    def _joined(self, text: str) -> str:
        """CRLF may be cut in two between calls."""
        if self._pending_cr:
            text = "\r" + text
        self._pending_cr = text.endswith("\r")
        return _clean_text(text[:-1] if self._pending_cr else text)

    def _finished_length(self, text: str) -> int:
        """Characters before the last top-level block: no text to come can change them."""
        tokens = PARSER.block.parse(text, PARSER, {}, []) or []
        starts = [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
        if len(starts) < 2:
            return 0
        return sum(len(line) + 1 for line in text.split("\n")[: starts[-1]])
