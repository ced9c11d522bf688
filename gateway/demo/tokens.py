"""The demo's own tokenizer: a word, a CJK character or a mark is one token.

Space before a token belongs to it, so joining the tokens gives the text back and anyone
can recount what the backend reports.
"""

import re

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
# Long runs (URLs, base64) are cut, so a large body cannot pass for a short prompt.
_TOKEN = re.compile(rf"\s*(?:[{_CJK}]|[^\W{_CJK}]{{1,12}}|\S)|\s+")
_CJK_CHARACTER = re.compile(rf"[{_CJK}]")
_LETTER = re.compile(r"[^\W\d_]")


def split(text: str) -> list[str]:
    return _TOKEN.findall(text)


def count(text: str) -> int:
    return len(split(text))


def mostly_chinese(text: str) -> bool:
    """Counts against letters only: a Chinese question may quote plenty of English."""
    return len(_CJK_CHARACTER.findall(text)) * 3 > len(_LETTER.findall(text))
