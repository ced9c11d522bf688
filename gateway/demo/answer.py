"""The text of an answer: Markdown about the prompt that says it comes from no model."""

from typing import Any

import orjson

from gateway.demo import answer_chinese, answer_english
from gateway.demo.chat_request import ChatRequest, text_of
from gateway.demo.facts import Facts
from gateway.demo.schema_example import example
from gateway.demo.subject import Subject
from gateway.demo.tokens import split


def write(request: ChatRequest, subject: Subject, facts: Facts) -> list[str]:
    """The answer as tokens, exactly as many as wished where a length was wished."""
    if request.response_format and request.response_format["type"] != "text":
        return split(_document(request, subject))
    words = answer_chinese if subject.chinese else answer_english
    if request.last_role == "tool":
        result = text_of(request.messages[-1])
        text = words.about_result(result, _table(result, head=words.result_table_head()))
    else:
        text = words.about_prompt(subject, facts)
    tokens = split(text)
    wished = request.wishes.tokens
    if wished is None:
        return tokens
    more = split(words.filler(subject))
    repeats = -(-max(wished - len(tokens), 0) // len(more))
    return (tokens + more * repeats)[:wished]


def _document(request: ChatRequest, subject: Subject) -> str:
    """JSON mode: a document that fits the schema, or one about the prompt without any."""
    form = request.response_format or {}
    if form.get("type") == "json_schema":
        document = example(form["json_schema"]["schema"], subject=subject)
    else:
        document = {
            "demo": True,
            "model": request.model.id,
            "topic": subject.topic,
            "key_words": subject.key_words,
            "language": "zh" if subject.chinese else "en",
        }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _table(result: str, *, head: str) -> str:
    """A tool's JSON object as a Markdown table; nothing for any other result."""
    try:
        found: Any = orjson.loads(result)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(found, dict) or not found:
        return ""
    return head + "\n".join(f"| {_cell(key)} | {_cell(value)} |" for key, value in found.items())


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text.replace("|", "\\|").replace("\n", " ")
