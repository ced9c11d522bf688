"""Each backend refuses what the published tables say it refuses, in the same words."""

from typing import Any

import pytest

from tests.gateway.demo.client import Demo, Json, user

SYSTEM = {"role": "system", "content": "Be brief."}
DEVELOPER = {"role": "developer", "content": "Be brief."}
SHAPES = {
    "first": [SYSTEM, user("Hi")],
    "after a user turn": [user("Hi"), SYSTEM, user("Well?")],
    "last": [user("Hi"), SYSTEM],
    "two": [SYSTEM, user("Hi"), SYSTEM, user("Well?")],
    "developer": [DEVELOPER, user("Hi")],
    "none": [user("Hi")],
}
NOT_FIRST = "System message must be at the beginning."
UNKNOWN_ROLE = "Failed to deserialize the JSON body into the target type: messages[0]: unknown role: developer"

LENIENT = ["DeepSeek-V4-Flash", "DeepSeek-V4-Flash-Vision-Exp", "DeepSeek-V4.1-Flash", "MiMo-V2.6-Flash"]
UNVERIFIED = ["MiniCPM-V-4.7-1B", "MiniCPM-V-4.7-35B-A3B", "Gemma-4-31B-IT"]
STRICT = ["Qwen3.8-Flash-Next", "Qwen3.8-27B"]
SYSTEM_ANYWHERE = [*LENIENT, "GLM-5.3-Flash", "MiniCPM5-2B"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", [*LENIENT, *UNVERIFIED])
def test_lenient_models_take_every_shape(demo: Demo, model: str, shape: str) -> None:
    assert demo.post(model=model, messages=SHAPES[shape]).status_code == 200


@pytest.mark.parametrize("shape", ["first", "after a user turn", "last", "two", "none"])
@pytest.mark.parametrize("model", SYSTEM_ANYWHERE)
def test_system_messages_may_stand_anywhere(demo: Demo, model: str, shape: str) -> None:
    assert demo.post(model=model, messages=SHAPES[shape]).status_code == 200


@pytest.mark.parametrize("model", STRICT)
def test_both_qwen_take_a_single_system_message_first_or_none(demo: Demo, model: str) -> None:
    assert demo.post(model=model, messages=SHAPES["first"]).status_code == 200
    assert demo.post(model=model, messages=SHAPES["none"]).status_code == 200


@pytest.mark.parametrize("shape", ["after a user turn", "last", "two"])
@pytest.mark.parametrize("model", STRICT)
def test_both_qwen_refuse_a_system_message_elsewhere(demo: Demo, model: str, shape: str) -> None:
    assert demo.refused(model=model, messages=SHAPES[shape]) == (400, NOT_FIRST)


@pytest.mark.parametrize(
    ("model", "status", "text"),
    [
        ("Qwen3.8-Flash-Next", 422, UNKNOWN_ROLE),
        ("GLM-5.3-Flash", 422, UNKNOWN_ROLE),
        ("MiniCPM5-2B", 422, UNKNOWN_ROLE),
        ("Qwen3.8-27B", 400, "Unexpected message role."),
    ],
)
def test_developer_is_refused(demo: Demo, model: str, status: int, text: str) -> None:
    assert demo.refused(model=model, messages=SHAPES["developer"]) == (status, text)


def test_the_refusal_names_the_index_of_the_role(demo: Demo) -> None:
    status, text = demo.refused(model="GLM-5.3-Flash", messages=[user("Hi"), user("Well?"), DEVELOPER])
    assert status == 422
    assert text.endswith("messages[2]: unknown role: developer")


SEVEN = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
TIERS = {
    **dict.fromkeys(LENIENT, SEVEN),
    "Qwen3.8-Flash-Next": ["none", "low", "medium", "xhigh"],
    "Qwen3.8-27B": ["low", "medium", "xhigh"],
    "GLM-5.3-Flash": ["low", "medium", "high"],
    **dict.fromkeys(["MiniCPM5-2B", *UNVERIFIED], SEVEN),
}


def expected_refusal(model: str, tier: str) -> tuple[int, str]:
    if model == "GLM-5.3-Flash":
        return 422, (
            "Failed to deserialize the JSON body into the target type: "
            f"reasoning_effort: unknown variant `{tier}`, expected one of `low`, `medium`, `high`"
        )
    return 400, f"Unexpected reasoning effort {tier}. Supported types are xhigh (default), medium, and low."


@pytest.mark.parametrize("tier", SEVEN)
@pytest.mark.parametrize("model", TIERS)
def test_tiers(demo: Demo, model: str, tier: str) -> None:
    if tier in TIERS[model]:
        assert demo.post(model=model, reasoning_effort=tier).status_code == 200
    else:
        assert demo.refused(model=model, reasoning_effort=tier) == expected_refusal(model, tier)


def test_the_body_layer_speaks_before_the_template(demo: Demo) -> None:
    messages = [user("Hi"), SYSTEM, DEVELOPER]
    status, text = demo.refused(model="Qwen3.8-Flash-Next", messages=messages, reasoning_effort="high")
    assert (status, text.endswith("messages[2]: unknown role: developer")) == (422, True)


def test_mimo_takes_any_value_as_a_tier(demo: Demo) -> None:
    assert demo.post(model="MiMo-V2.6-Flash", reasoning_effort="banana").status_code == 200


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def picture(*, text: str = "What is this?") -> list[Json]:
    return [{"role": "user", "content": [IMAGE, {"type": "text", "text": text}]}]


@pytest.mark.parametrize("model", ["DeepSeek-V4-Flash", "GLM-5.3-Flash", "MiniCPM5-2B", "Qwen/Qwen3-30B-A3B-FP8"])
def test_text_models_refuse_images(demo: Demo, model: str) -> None:
    text = f"{model} is not a multimodal model: it takes no image_url parts."
    assert demo.refused(model=model, messages=picture()) == (400, text)


def test_a_prompt_and_answer_beyond_the_window_are_refused(demo: Demo) -> None:
    # "Hello world" is two tokens, its role one, the opening of the answer one.
    assert demo.refused(model="MiniCPM5-2B", messages=[user("Hello world")], max_tokens=131_072) == (
        400,
        "This model's maximum context length is 131072 tokens. However, you requested 131076 tokens "
        "(4 in the messages, 131072 in the completion). Please reduce the length of the messages or completion.",
    )
    assert demo.post(model="MiniCPM5-2B", messages=[user("Hello world")], max_tokens=131_068).status_code == 200


def test_a_prompt_that_fills_the_window_is_refused(demo: Demo) -> None:
    status, text = demo.refused(model="MiniCPM5-2B", messages=[user("a " * 131_069 + "a")])
    assert status == 400
    assert "131072 in the messages, 0 in the completion" in text


OTHER_FAULTS: list[tuple[Json, int, str]] = [
    ({"model": "nobody"}, 404, "The model `nobody` does not exist."),
    ({"model": "OmniVoice"}, 404, "The model `OmniVoice` does not exist."),
    ({"messages": []}, 400, "messages must not be empty"),
    ({"max_tokens": 0}, 400, "max_tokens must be at least 1, got 0."),
    ({"tool_choice": "required"}, 400, "When using `tool_choice`, `tools` must be set."),
]


@pytest.mark.parametrize(("fields", "status", "text"), OTHER_FAULTS)
def test_other_faults(demo: Demo, fields: Json, status: int, text: str) -> None:
    assert demo.refused(**fields) == (status, text)


@pytest.mark.parametrize("body", [b"{", b"[]", b"3", b"\xff", b'{"model": "GLM-5.3-Flash", "messages": 4}'])
def test_a_body_that_is_no_request_is_refused_not_an_error(demo: Demo, body: bytes) -> None:
    response = demo.http.post("/v1/chat/completions", content=body)
    assert response.status_code in (400, 404, 422)
    assert response.json()["error"]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [None, 3, {"type": "text"}, {"type": "image_url"}]}]},
        {"messages": [user("hi"), {"role": "assistant", "content": None, "tool_calls": "no"}, user("x")]},
        {"messages": [user("hi"), {"role": "assistant", "tool_calls": [None, {"function": 3}]}, user("x")]},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": 3, "description": 4}}]},
        {"stream_options": 3},
        {"chat_template_kwargs": "x"},
        {"reasoning_effort": {"a": 1}},
        {"response_format": "json"},
        {"tool_choice": 3},
        {"stop": 3},
        {"n": "2"},
    ],
)
def test_odd_values_never_break_the_backend(demo: Demo, fields: dict[str, Any]) -> None:
    response = demo.post(**fields)
    assert response.status_code in (200, 400, 422)
    assert response.headers["content-type"] == "application/json"
