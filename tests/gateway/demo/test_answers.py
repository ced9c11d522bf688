"""What a person reads: Markdown about the prompt, in the prompt's language, plainly a demo."""

import pytest

from gateway.demo.tokens import count
from tests.gateway.demo.client import Demo, Json, user


def content(demo: Demo, text: str, **fields: object) -> str:
    return str(demo.message(messages=[user(text)], **fields)["content"])


def test_says_that_it_is_a_demo_and_whom_it_stands_in_for(demo: Demo) -> None:
    text = content(demo, "What is ROCm?", model="MiniCPM5-2B")
    assert text.startswith("## What is ROCm?\n\nThis is a **demo answer**, not a model's")
    assert "`MiniCPM5-2B`" in text
    assert "*ROCm*" in text


def test_answers_chinese_in_chinese(demo: Demo) -> None:
    text = content(demo, "ROCm 是什么？")
    assert text.startswith("## ROCm 是什么？\n\n这是**演示回答**，不是模型生成的")


def test_shows_code_a_table_and_a_formula_where_they_fit(demo: Demo) -> None:
    assert "```python" in content(demo, "Write a function that sorts")
    assert "| | Rust | Python |" in content(demo, "Please compare Rust with Python")
    assert "$$" in content(demo, "Show me an equation")
    assert "```" not in content(demo, "Tell me a joke")


def test_mentions_the_system_message_and_the_turn(demo: Demo) -> None:
    messages = [{"role": "system", "content": "Answer in rhyme."}, user("First question"), user("Second one")]
    text = demo.message(messages=messages)["content"]
    assert "“Answer in rhyme.”" in text
    assert "This is turn 2; the conversation began with “First question”" in text


def test_the_same_request_gets_the_same_answer(demo: Demo) -> None:
    assert content(demo, "Hello") == content(demo, "Hello")


@pytest.mark.parametrize("wished", [1, 12, 500, 3000])
def test_a_wished_length_is_exact(demo: Demo, wished: int) -> None:
    answer = demo.complete(messages=[user(f"Hi [[tokens={wished}]]")])
    assert count(answer["choices"][0]["message"]["content"]) == wished
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == wished


def test_lists_every_model_of_the_catalog(demo: Demo) -> None:
    listed: Json = demo.http.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == [
        "DeepSeek-V4-Flash",
        "DeepSeek-V4-Flash-Vision-Exp",
        "DeepSeek-V4.1-Flash",
        "Qwen3.8-Flash-Next",
        "Qwen3.8-27B",
        "GLM-5.3-Flash",
        "MiMo-V2.6-Flash",
        "MiniCPM5-2B",
        "MiniCPM-V-4.7-1B",
        "MiniCPM-V-4.7-35B-A3B",
        "Gemma-4-31B-IT",
        "MinerU2.5-Pro",
        "OmniVoice",
        "Clef",
        "d3",
        "d3-flash",
        "Qwen/Qwen3-30B-A3B-FP8",
    ]


def test_unknown_paths_are_a_json_404(demo: Demo) -> None:
    response = demo.http.get("/nowhere")
    assert (response.status_code, response.json()) == (404, {"detail": "Not Found"})
