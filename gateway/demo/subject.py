"""What can be seen in a prompt without understanding it: topic, key words, names, numbers."""

import re
from collections import Counter
from dataclasses import dataclass

from gateway.demo.tokens import mostly_chinese

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9.+#_-]*[A-Za-z0-9+#]|[A-Za-z]")
_NAME = re.compile(r"\b[A-Z][A-Za-z]+(?: [A-Z][a-z]+)*")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_CHINESE_RUN = re.compile(r"[\u4e00-\u9fff]+")
_SENTENCE_END = re.compile(r"[.!?。！？\n]+")
# Characters that join Chinese words rather than carry meaning; runs are cut at them.
_CHINESE_JOINTS = re.compile("一下|请问|[的了是在和与吗呢吧请把给我你他她它们这那个一用什么怎为有以及对就都也]")
_PLAIN_WORDS = """
a about after all also an and any are as at be because been but by can could do does for from give had has have how i
if in into is it its let like make may me more most my not of on one only or other our please say should show so some
tell than that the their them then there these they this to two up us use very want was we were what when where which
who why will with would write you your
"""
_PLAIN = frozenset(_PLAIN_WORDS.split())


@dataclass(frozen=True, slots=True)
class Subject:
    text: str
    topic: str
    key_words: tuple[str, ...]
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    sentences: int
    chinese: bool

    @property
    def is_question(self) -> bool:
        return self.text.rstrip().endswith(("?", "？"))

    def mentions(self, *stems: str) -> bool:
        lowered = self.text.lower()
        return any(re.search(rf"(?<![a-z]){stem}", lowered) for stem in stems)


def study(text: str) -> Subject:
    # The head of a long prompt says as much as a demo can use.
    head = text[:4_000]
    chinese = mostly_chinese(head)
    sentences = [part for part in _SENTENCE_END.split(head) if part.strip()]
    return Subject(
        text=head,
        topic=_topic(head, chinese=chinese),
        key_words=_key_words(head, chinese=chinese),
        names=_names(head),
        numbers=tuple(_NUMBER.findall(head)[:20]),
        sentences=len(sentences),
        chinese=chinese,
    )


def _topic(text: str, *, chinese: bool) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"[`*_#<>\[\]|\\]", "", line).strip()
    limit = 24 if chinese else 60
    if len(line) <= limit:
        return line or ("空白的消息" if chinese else "An empty message")
    cut = line[:limit].rstrip() if chinese else line[:limit].rsplit(" ", 1)[0]
    return f"{cut}…"


def _key_words(text: str, *, chinese: bool) -> tuple[str, ...]:
    if chinese:
        pieces = (p for run in _CHINESE_RUN.findall(text) for p in _CHINESE_JOINTS.split(run))
        found = [piece[:6] for piece in pieces if len(piece) >= 2]
    else:
        found = []
    latin = [word for word in _WORD.findall(text) if len(word) > 2 and word.lower() not in _PLAIN]
    counted = Counter(dict.fromkeys(found + latin, 0))
    counted.update(found + latin)
    return tuple(word for word, _ in counted.most_common(6))


def _names(text: str) -> tuple[str, ...]:
    """Capitalised words that are not merely the first of a sentence."""
    names = []
    for match in _NAME.finditer(text):
        before = text[: match.start()].rstrip()
        words = match.group().split(" ")
        if not before or before[-1] in ".!?:\n":
            words = words[1:]
        if words and words[0].lower() not in _PLAIN:
            names.append(" ".join(words))
    return tuple(dict.fromkeys(names))
