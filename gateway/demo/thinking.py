"""Whether a request makes the model think, how long, and the text of it."""

from itertools import cycle

from gateway.catalog import Switch
from gateway.demo.chat_request import ChatRequest
from gateway.demo.subject import Subject
from gateway.demo.tokens import split

# About this many tokens for each tier. A model that thinks without naming its tier
# (GLM-5.3-Flash, the enable_thinking switch) takes the middle one.
TIER_TOKENS = {"none": 0, "minimal": 24, "low": 40, "medium": 80, "high": 150, "xhigh": 220, "max": 300}
_ALWAYS_ON_TOKENS = 32


def length(request: ChatRequest) -> int:
    thinking = request.model.thinking
    match thinking.switch:
        case Switch.NONE:
            target = 0
        case Switch.ALWAYS_ON:
            target = _ALWAYS_ON_TOKENS
        case Switch.ENABLE_THINKING:
            target = TIER_TOKENS["medium"] if request.enable_thinking is True else 0
        case Switch.REASONING_EFFORT:
            unnamed = "medium" if thinking.by_default else "none"
            target = TIER_TOKENS.get(request.effort or thinking.default_effort or unnamed, 0)
    wished = request.wishes.thinking
    return wished if target and wished is not None else target


def think(request: ChatRequest, subject: Subject) -> list[str]:
    """The thinking as tokens: whole sentences up to its length, or exactly a wished one."""
    target = length(request)
    tokens: list[str] = []
    lines = cycle(_CHINESE if subject.chinese else _ENGLISH)
    words = cycle(subject.key_words or (subject.topic,))
    while len(tokens) < target:
        gap = "" if not tokens else ("" if subject.chinese else " ")
        tokens.extend(split(gap + next(lines).format(topic=_plain(subject.topic), word=_plain(next(words)))))
    return tokens[:target] if request.wishes.thinking is not None else tokens


def _plain(text: str) -> str:
    return text.strip(" ?？!！.。…")


_ENGLISH = (
    'The question is about "{topic}".',
    'I look at "{word}" first, since the rest hangs on it.',
    "A short answer with a heading and a list should read well.",
    'What would "{word}" mean to the person who asks?',
    "I should say plainly that nobody understood the question here.",
    'Does "{word}" need an example? Perhaps a small one.',
    "Let me check the order of the points once more.",
    "Two ways lead there; the plainer one is enough.",
)
_CHINESE = (
    "问题是关于“{topic}”的。",
    "先看“{word}”，其余的都围绕它。",
    "用一个标题加一个列表，读起来会比较清楚。",
    "提问的人心里的“{word}”指的是什么？",
    "应该直说：这里并没有模型真正理解问题。",
    "“{word}”需要举例吗？也许举一个小例子就够了。",
    "再检查一遍各点的顺序。",
    "有两种写法，选更直白的那一种。",
)
