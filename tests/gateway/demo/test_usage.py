"""Usage in each model's own shape, and numbers that anyone can recount."""

import pytest

from gateway.demo.tokens import count, split
from tests.gateway.demo.client import Demo, Json, user
from tests.gateway.demo.test_rules import picture

NESTED_AND_TOP = {"completion_tokens_details", "reasoning_tokens"}
SHAPES = {
    "DeepSeek-V4-Flash": NESTED_AND_TOP,
    "DeepSeek-V4-Flash-Vision-Exp": NESTED_AND_TOP,
    "DeepSeek-V4.1-Flash": NESTED_AND_TOP,
    "Qwen3.8-Flash-Next": NESTED_AND_TOP,
    "Qwen3.8-27B": set[str](),
    "GLM-5.3-Flash": {"completion_tokens_details"},
    "MiMo-V2.6-Flash": {"completion_tokens_details"},
    "MiniCPM5-2B": {"completion_tokens_details"},
    "Qwen/Qwen3-30B-A3B-FP8": set[str](),
}


@pytest.mark.parametrize(("model", "extra"), SHAPES.items())
def test_fields(demo: Demo, model: str, extra: set[str]) -> None:
    usage = demo.usage(model=model, messages=[user("Hello world")])
    assert set(usage) == {"prompt_tokens", "completion_tokens", "total_tokens"} | extra


def test_completion_tokens_are_thinking_and_answer_together(demo: Demo) -> None:
    answer = demo.complete(model="Qwen3.8-Flash-Next", messages=[user("Hello world")])
    message, usage = answer["choices"][0]["message"], answer["usage"]
    thinking, content = count(message["reasoning"]), count(message["content"])
    assert usage == {
        "prompt_tokens": 4,
        "completion_tokens": thinking + content,
        "total_tokens": 4 + thinking + content,
        "completion_tokens_details": {"reasoning_tokens": thinking},
        "reasoning_tokens": thinking,
    }


def test_mimo_reports_no_thinking_though_it_counts_it(demo: Demo) -> None:
    answer = demo.complete(model="MiMo-V2.6-Flash")
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert usage["completion_tokens"] == count(message["reasoning"]) + count(message["content"])


IMAGES: list[tuple[str, int, Json | None]] = [
    ("DeepSeek-V4-Flash-Vision-Exp", 115, {"image_tokens": 115}),
    ("DeepSeek-V4.1-Flash", 202, {"image_tokens": 202}),
    ("Qwen3.8-Flash-Next", 144, {"image_tokens": 144}),
    ("Qwen3.8-27B", 72, {"multimodal_tokens": {"image": 72}}),
    ("MiMo-V2.6-Flash", 100, {"image_tokens": 100}),
    ("MiniCPM-V-4.7-1B", 100, {"image_tokens": 100}),
    ("MiniCPM-V-4.7-35B-A3B", 100, {"image_tokens": 100}),
    ("Gemma-4-31B-IT", 100, None),
]


@pytest.mark.parametrize(("model", "tokens", "details"), IMAGES)
def test_images_are_counted_and_reported_in_their_place(
    demo: Demo, model: str, tokens: int, details: Json | None
) -> None:
    usage = demo.usage(model=model, messages=picture(text=f"Look at {model} once"))
    # One token for the role, one that opens the answer.
    assert usage["prompt_tokens"] == tokens + count(f"Look at {model} once") + 2
    assert usage.get("prompt_tokens_details") == details


def test_two_images_count_twice(demo: Demo) -> None:
    messages = picture(text="first pair") + picture(text="second of the pair")
    usage = demo.usage(model="Qwen3.8-27B", messages=messages)
    assert usage["prompt_tokens_details"]["multimodal_tokens"] == {"image": 144}


def test_a_repeated_prompt_is_cached_in_blocks_of_sixteen(demo: Demo) -> None:
    text = " ".join(f"cached{i}" for i in range(40))  # 40 words, 42 tokens with role and opening
    first = demo.usage(messages=[user(text)])
    again = demo.usage(messages=[user(text)])
    assert "prompt_tokens_details" not in first
    assert again["prompt_tokens"] == 42
    assert again["prompt_tokens_details"] == {"cached_tokens": 32}


def test_a_conversation_that_goes_on_finds_its_beginning_cached(demo: Demo) -> None:
    text = " ".join(f"begun{i}" for i in range(31))  # with its role: two blocks
    demo.usage(messages=[user(text)])
    history = [user(text), {"role": "assistant", "content": "Yes."}, user("And then?")]
    assert demo.usage(messages=history)["prompt_tokens_details"] == {"cached_tokens": 32}


def test_another_model_does_not_share_the_cache(demo: Demo) -> None:
    text = " ".join(f"apart{i}" for i in range(40))
    demo.usage(model="MiniCPM5-2B", messages=[user(text)])
    assert "prompt_tokens_details" not in demo.usage(model="GLM-5.3-Flash", messages=[user(text)])


def test_a_fully_known_prompt_still_computes_its_last_block(demo: Demo) -> None:
    text = " ".join(f"whole{i}" for i in range(30))  # 32 tokens in all
    demo.usage(messages=[user(text)])
    assert demo.usage(messages=[user(text)])["prompt_tokens_details"] == {"cached_tokens": 16}


def test_tokens_join_to_the_text_they_came_from() -> None:
    text = "  Hello,\n\n世界 and émigrés 🎉 snake_case \t"
    assert "".join(split(text)) == text
    assert split("Hello, 世界") == ["Hello", ",", " 世", "界"]
