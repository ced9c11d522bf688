"""What portable mode changes in a request, by the model's card."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalog import EFFORTS, load, unknown_model
from gateway.portable import adapt, nearest_effort

CATALOG = load()
USER = {"role": "user", "content": "Hi"}
AWKWARD: dict[str, Any] = {
    "messages": [
        {"role": "developer", "content": "Be brief."},
        USER,
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "Bye"},
    ],
    "reasoning_effort": "high",
    "max_completion_tokens": 512,
}
MERGED = [{"role": "system", "content": "Be brief.\n\nAnswer in French."}, USER, {"role": "user", "content": "Bye"}]


def adapted(model_id: str, **document: Any) -> tuple[dict[str, Any], list[str]]:
    return adapt(document, CATALOG[model_id])


def test_a_model_that_takes_all_of_it_gets_it_unchanged_but_for_the_token_limit() -> None:
    document, changes = adapted("DeepSeek-V4-Flash", **AWKWARD)
    assert document["messages"] == AWKWARD["messages"]
    assert document["reasoning_effort"] == "high"
    assert document["max_tokens"] == 512
    assert "max_completion_tokens" not in document
    assert changes == ["max_completion_tokens->max_tokens"]


def test_a_model_with_one_system_message_gets_one_at_the_start() -> None:
    document, changes = adapted("Qwen3.8-27B", **AWKWARD)
    assert document == {"messages": MERGED, "reasoning_effort": "xhigh", "max_tokens": 512}
    assert changes == [
        "developer->system", "system-merged", "reasoning_effort:high->xhigh", "max_completion_tokens->max_tokens",
    ]  # fmt: skip


def test_a_model_with_a_template_switch_gets_the_switch() -> None:
    document, changes = adapted("Gemma-4-31B-IT", **AWKWARD)
    assert document["chat_template_kwargs"] == {"enable_thinking": True}
    assert "reasoning_effort" not in document
    assert changes == [
        "developer->system", "system-merged", "reasoning_effort:high->enable_thinking:true",
        "max_completion_tokens->max_tokens",
    ]  # fmt: skip


def test_effort_none_turns_the_switch_off() -> None:
    document, changes = adapted("MiniCPM-V-4.7-1B", messages=[USER], reasoning_effort="none")
    assert document == {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}}
    assert changes == ["reasoning_effort:none->enable_thinking:false"]


def test_the_clients_own_switch_stands() -> None:
    own = {"enable_thinking": False, "other": 1}
    document, _ = adapted("Gemma-4-31B-IT", messages=[USER], reasoning_effort="high", chat_template_kwargs=own)
    assert document["chat_template_kwargs"] == own


def test_a_model_without_thinking_gets_no_tier() -> None:
    document, changes = adapted("MiniCPM5-2B", messages=[USER], reasoning={"effort": "low"})
    assert document == {"messages": [USER], "reasoning": {}}
    assert changes == ["reasoning_effort-removed"]


def test_both_spellings_of_the_effort_are_adapted_and_both_at_once_are_left_to_the_checks() -> None:
    document, changes = adapted("GLM-5.3-Flash", messages=[USER], reasoning={"effort": "xhigh"})
    assert document == {"messages": [USER], "reasoning": {}, "reasoning_effort": "high"}
    assert changes == ["reasoning_effort:xhigh->high"]
    both = {"messages": [USER], "reasoning": {"effort": "xhigh"}, "reasoning_effort": "max"}
    assert adapted("GLM-5.3-Flash", **both) == (both, [])


@pytest.mark.parametrize(
    ("effort", "tiers", "nearest"),
    [
        ("high", ("low", "medium", "xhigh"), "xhigh"),
        ("xhigh", ("low", "medium", "high"), "high"),
        ("max", ("low", "medium", "high"), "high"),
        ("max", ("none", "low", "medium", "xhigh"), "xhigh"),
        ("minimal", ("none", "low", "medium", "xhigh"), "none"),
        ("minimal", ("low", "medium", "xhigh"), "low"),
        ("none", ("low", "medium", "high"), "low"),
        ("medium", ("low", "high"), "low"),
        ("medium", ("high", "low"), "low"),
        ("medium", ("low", "medium", "high"), "medium"),
    ],
)
def test_the_nearest_tier(effort: str, tiers: tuple[str, ...], nearest: str) -> None:
    assert nearest_effort(effort, tiers) == nearest


def test_one_misplaced_system_message_is_moved() -> None:
    system = {"role": "system", "content": "Be brief.", "name": "house"}
    document, changes = adapted("Qwen3.8-Flash-Next", messages=[USER, system])
    assert document["messages"] == [system, USER]
    assert changes == ["system-first"]


def test_parts_are_merged_as_parts() -> None:
    part = {"type": "text", "text": "B"}
    messages = [{"role": "system", "content": "A"}, {"role": "system", "content": [part]}, USER]
    document, _ = adapted("Qwen3.8-27B", messages=messages)
    assert document["messages"] == [{"role": "system", "content": [{"type": "text", "text": "A"}, part]}, USER]


def test_a_model_without_a_card_gets_system_and_max_tokens_alone() -> None:
    document, changes = adapt(AWKWARD, unknown_model("mine"))
    assert [message["role"] for message in document["messages"]] == ["system", "user", "system", "user"]
    assert document["reasoning_effort"] == "high"
    assert changes == ["developer->system", "max_completion_tokens->max_tokens"]


def test_of_two_token_limits_the_older_name_stands() -> None:
    both = {"messages": [USER], "max_tokens": 5, "max_completion_tokens": 6}
    assert adapted("MiniCPM5-2B", **both) == (both, [])


def test_the_request_itself_is_not_touched() -> None:
    before = copy.deepcopy(AWKWARD)
    for model in CATALOG.chat_models():
        adapt(AWKWARD, model)
    assert before == AWKWARD


def test_a_plain_request_is_nobodys_business() -> None:
    plain = {"messages": [{"role": "system", "content": "Be brief."}, USER], "max_tokens": 5, "temperature": 1}
    for model in CATALOG.chat_models():
        assert adapt(plain, model) == (plain, [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(EFFORTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "effort"]), inner),
    max_leaves=8,
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["developer", "system", "user"]) | json_values}) | json_values
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "messages": messages | json_values,
            "reasoning_effort": st.sampled_from(EFFORTS) | json_values,
            "reasoning": json_values,
            "max_completion_tokens": json_values,
            "chat_template_kwargs": json_values,
        },
    ),
    st.sampled_from([*CATALOG.chat_models(), replace(unknown_model("mine"), known=False)]),
)
def test_nonsense_raises_nothing_and_a_second_pass_changes_nothing(document: dict[str, Any], model: Any) -> None:
    once, _ = adapt(document, model)
    assert adapt(once, model) == (once, [])
