"""The demo's words in English."""

from collections.abc import Iterator

from gateway.demo.facts import Facts
from gateway.demo.subject import Subject


def about_prompt(subject: Subject, facts: Facts) -> str:
    return "\n\n".join(_sections(subject, facts))


def about_result(result: str, table: str) -> str:
    body = table or f"> {result.strip() or '(nothing)'}"
    return (
        "## What the tool answered\n\n"
        f"{body}\n\n"
        "That is the tool's result, word for word. This is a demo, not a model: it calls tools and shows "
        "what they return, but draws no conclusions."
    )


def filler(subject: Subject) -> str:
    words = ", ".join(f"*{word}*" for word in subject.key_words[:3]) or "the question"
    return (
        f"\n\nMore about {words}, since a longer answer was asked for. These lines carry no knowledge; they are "
        "here so that streaming, scrolling and counting have something to work on."
    )


def result_table_head() -> str:
    return "| Field | Value |\n|---|---|\n"


def _sections(subject: Subject, facts: Facts) -> Iterator[str]:
    number = f" (choice {facts.choice + 1})" if facts.choice else ""
    yield f"## {subject.topic}{number}"
    yield (
        f"This is a **demo answer**, not a model's: the demo backend stands in for `{facts.model_id}`, so that "
        "chat, keys and metering can be tried without a GPU."
    )
    yield "**What I can see in your message**\n\n" + "\n".join(f"- {line}" for line in _seen(subject, facts))
    if subject.mentions("compar", "versus", "vs ", "vs\\.", "differ", "table", "pros "):
        yield _comparison(subject)
    if subject.mentions("code", "python", "function", "script", "program", "javascript", "example", "curl"):
        yield _code(subject)
    if subject.mentions("math", "equation", "formula", "integral", "latex", "solve", "prove"):
        yield "A formula, to see one set: $e^{i\\pi} + 1 = 0$, and one on its own line:"
        yield "$$\\sum_{k=1}^{n} k = \\frac{n(n+1)}{2}$$"
    yield _request_table(facts)
    yield (
        "To hear a real model, start an OpenAI-compatible server and point the gateway's `UPSTREAM_URL` at it; "
        "nothing else changes."
    )


def _seen(subject: Subject, facts: Facts) -> Iterator[str]:
    kind = "a question" if subject.is_question else "a request"
    many = "sentence" if subject.sentences == 1 else "sentences"
    yield f"It reads as {kind} of {len(subject.text.split())} words in {subject.sentences} {many}."
    if subject.key_words:
        yield "The words that carry it: " + ", ".join(f"*{word}*" for word in subject.key_words) + "."
    if subject.numbers:
        yield "Numbers in it: " + ", ".join(subject.numbers[:5]) + "."
    if facts.system_text:
        yield f"The system message asks: “{facts.system_text[:120]}”"
    if facts.earlier:
        yield f"This is turn {facts.turn}; the conversation began with “{facts.earlier[:60]}”"
    if facts.images:
        yield f"Images attached: {facts.images}, read as {facts.image_tokens} tokens."


def _comparison(subject: Subject) -> str:
    first, second = (*subject.names, *subject.key_words, "the one", "the other")[:2]
    return (
        f"| | {first} | {second} |\n|---|---|---|\n"
        f"| Named in the prompt | {_times(subject, first)} | {_times(subject, second)} |\n"
        f"| Letters | {len(first)} | {len(second)} |\n"
        "| Verdict | ask a model | ask a model |"
    )


def _times(subject: Subject, word: str) -> str:
    times = subject.text.count(word)
    return "once" if times == 1 else f"{times} times"


def _code(subject: Subject) -> str:
    return (
        "A small piece of code, to see how it is shown:\n\n"
        "```python\n"
        "def key_words(text: str) -> list[str]:\n"
        '    """The longest words of a text, longest first."""\n'
        "    words = {word.strip('.,?!') for word in text.split()}\n"
        "    return sorted(words, key=len, reverse=True)[:5]\n\n\n"
        f"print(key_words({subject.topic!r}))\n"
        "```"
    )


def _request_table(facts: Facts) -> str:
    thinking = f"{facts.thinking_tokens} tokens" if facts.thinking_tokens else "none"
    rows = [("Model", f"`{facts.model_id}`"), ("Input", f"{facts.prompt_tokens} tokens"), ("Thinking", thinking)]
    if facts.effort:
        rows.append(("Effort", f"`{facts.effort}`"))
    if facts.temperature is not None:
        rows.append(("Temperature", f"{facts.temperature}"))
    if facts.max_tokens is not None:
        rows.append(("Limit", f"{facts.max_tokens} tokens"))
    return "| This request | |\n|---|---|\n" + "\n".join(f"| {name} | {value} |" for name, value in rows)
