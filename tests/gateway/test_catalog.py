"""The catalog says what the published tables say, and a bad file says what is wrong with it."""

from pathlib import Path

import pytest

from gateway.catalog import BUNDLED, Catalog, CatalogError, Rejection, load, unknown_model

CATALOG = load()

SEVEN = "none minimal low medium high xhigh max"

# id, context, sees images, thinks by default, tiers, default tier
SPECIFICATIONS = [
    ("DeepSeek-V4-Flash", 1_048_576, False, False, SEVEN, None),
    ("DeepSeek-V4-Flash-Vision-Exp", 1_048_576, True, False, SEVEN, None),
    ("DeepSeek-V4.1-Flash", 1_048_576, True, False, SEVEN, None),
    ("Qwen3.8-Flash-Next", 262_144, True, True, "none low medium xhigh", "xhigh"),
    ("Qwen3.8-27B", 262_144, True, True, "low medium xhigh", "xhigh"),
    ("GLM-5.3-Flash", 262_144, False, True, "low medium high", None),
    ("MiMo-V2.6-Flash", 1_048_576, True, True, SEVEN, None),
    ("MiniCPM5-2B", 131_072, False, False, "", None),
    ("MiniCPM-V-4.7-1B", 262_144, True, False, "", None),
    ("MiniCPM-V-4.7-35B-A3B", 262_144, True, False, "", None),
    ("Gemma-4-31B-IT", 262_144, True, False, "", None),
]

# id, system placement, developer, status and text for it
MESSAGE_RULES = [
    ("DeepSeek-V4-Flash", "anywhere", "accepted", None),
    ("DeepSeek-V4-Flash-Vision-Exp", "anywhere", "accepted", None),
    ("DeepSeek-V4.1-Flash", "anywhere", "accepted", None),
    ("Qwen3.8-Flash-Next", "exactly_one_first", "rejected", 422),
    ("Qwen3.8-27B", "at_most_one_first", "rejected", 400),
    ("GLM-5.3-Flash", "anywhere", "rejected", 422),
    ("MiMo-V2.6-Flash", "anywhere", "accepted", None),
    ("MiniCPM5-2B", "anywhere", "rejected", 422),
    ("MiniCPM-V-4.7-1B", "one_first_verified", "unverified", None),
    ("MiniCPM-V-4.7-35B-A3B", "one_first_verified", "unverified", None),
    ("Gemma-4-31B-IT", "one_first_verified", "unverified", None),
]

# id, nested reasoning_tokens, top-level reasoning_tokens, place of the image count, sample
USAGE_SHAPES = [
    ("DeepSeek-V4-Flash", "counted", True, "unverified", None),
    ("DeepSeek-V4-Flash-Vision-Exp", "counted", True, "image_tokens", 115),
    ("DeepSeek-V4.1-Flash", "counted", True, "image_tokens", 202),
    ("Qwen3.8-Flash-Next", "counted", True, "image_tokens", 144),
    ("Qwen3.8-27B", "absent", False, "multimodal_tokens.image", 72),
    ("GLM-5.3-Flash", "counted", False, "unverified", None),
    ("MiMo-V2.6-Flash", "zero", False, "image_tokens", None),
    ("MiniCPM5-2B", "counted", False, "unverified", None),
    ("MiniCPM-V-4.7-1B", "unverified", None, "image_tokens", None),
    ("MiniCPM-V-4.7-35B-A3B", "unverified", None, "image_tokens", None),
    ("Gemma-4-31B-IT", "unverified", None, "unverified", None),
]

OWN_ENDPOINTS = [
    ("MinerU2.5-Pro", "ocr", "/v1/ocr", "page"),
    ("OmniVoice", "speech", "/v1/audio/speech", "character"),
    ("Clef", "systemone", "/v1/systemone", "input token"),
    ("d3", "systemone", "/v1/systemone", "input token"),
    ("d3-flash", "systemone", "/v1/systemone", "input token"),
]

DOUBLEWORD = "Qwen/Qwen3-30B-A3B-FP8"


def test_holds_the_sixteen_published_models_and_the_wider_card_in_order() -> None:
    expected = [row[0] for row in SPECIFICATIONS] + [row[0] for row in OWN_ENDPOINTS] + [DOUBLEWORD]
    assert list(CATALOG) == expected


@pytest.mark.parametrize(("model_id", "context", "images", "thinks", "efforts", "default"), SPECIFICATIONS)
def test_specifications(
    model_id: str, context: int, images: bool, thinks: bool, efforts: str, default: str | None
) -> None:
    model = CATALOG[model_id]
    assert model.endpoint_path == "/v1/chat/completions"
    assert model.context_length == context
    assert model.sees_images is images
    assert model.thinks_by_default is thinks
    assert model.efforts == tuple(efforts.split())
    assert model.default_effort == default
    assert (model.tokenizer, model.stability) == ("GPT", "experimental")
    assert (model.json_output, model.structured_outputs, model.tools) == (True, True, True)
    assert model.extra_parameters == ()


@pytest.mark.parametrize(("model_id", "system", "developer", "status"), MESSAGE_RULES)
def test_message_rules(model_id: str, system: str, developer: str, status: int | None) -> None:
    rules = CATALOG[model_id].messages
    assert (rules.system, rules.developer) == (system, developer)
    rejection = rules.developer_rejection
    assert (rejection.status if rejection else None) == status
    assert rules.rejects_misplaced_system is model_id.startswith("Qwen3.8")


@pytest.mark.parametrize(("model_id", "nested", "top_level", "images", "sample"), USAGE_SHAPES)
def test_usage_shapes(model_id: str, nested: str, top_level: bool | None, images: str, sample: int | None) -> None:
    usage = CATALOG[model_id].usage
    assert (usage.reasoning_tokens, usage.top_level_reasoning_tokens) == (nested, top_level)
    assert (usage.image_tokens, usage.image_sample) == (images, sample)


@pytest.mark.parametrize(("model_id", "endpoint", "path", "billed_per"), OWN_ENDPOINTS)
def test_models_with_an_endpoint_of_their_own(model_id: str, endpoint: str, path: str, billed_per: str) -> None:
    model = CATALOG[model_id]
    assert (model.endpoint, model.endpoint_path) == (endpoint, path)
    assert model.endpoint.billed_per == billed_per
    assert (model.json_output, model.tools) == (False, False)


def test_every_other_id_title_and_name_is_the_same() -> None:
    different = {
        model.id: (model.card_title, model.name)
        for model in CATALOG.values()
        if {model.card_title, model.name} != {model.id}
    }
    assert different == {
        "DeepSeek-V4-Flash": ("DeepSeek-V4-Flash-0731", "DeepSeek-V4-Flash"),
        "DeepSeek-V4.1-Flash": ("DeepSeek-V4.1-Flash-1017", "DeepSeek-V4.1-Flash"),
        "Gemma-4-31B-IT": ("Gemma-4-31B-IT", "Gemma 4 31B"),
    }


def test_what_turns_thinking_on() -> None:
    switches = {model.id: str(model.thinking.switch) for model in CATALOG.chat_models()}
    by_effort = ["DeepSeek-V4-Flash", "DeepSeek-V4-Flash-Vision-Exp", "DeepSeek-V4.1-Flash"]
    by_effort += ["Qwen3.8-Flash-Next", "Qwen3.8-27B", "GLM-5.3-Flash"]
    by_template = ["MiniCPM-V-4.7-1B", "MiniCPM-V-4.7-35B-A3B", "Gemma-4-31B-IT"]
    assert switches == {
        **dict.fromkeys(by_effort, "reasoning_effort"),
        "MiMo-V2.6-Flash": "always_on",
        "MiniCPM5-2B": "none",
        **dict.fromkeys(by_template, "chat_template_kwargs.enable_thinking"),
        DOUBLEWORD: "none",
    }


def stated(rejection: Rejection | None) -> Rejection:
    assert rejection is not None
    return rejection


def test_what_a_backend_says_to_a_tier_it_lacks() -> None:
    validator = "Unexpected reasoning effort high. Supported types are xhigh (default), medium, and low."
    for model_id in ("Qwen3.8-27B", "Qwen3.8-Flash-Next"):
        rejection = stated(CATALOG[model_id].thinking.rejection)
        assert (rejection.status, rejection.layer) == (400, "validator")
        assert rejection.render(effort="high") == validator
    rejection = stated(CATALOG["GLM-5.3-Flash"].thinking.rejection)
    assert (rejection.status, rejection.layer) == (422, "deserialisation")
    assert rejection.render(effort="xhigh") == (
        "Failed to deserialize the JSON body into the target type: "
        "reasoning_effort: unknown variant `xhigh`, expected one of `low`, `medium`, `high`"
    )
    assert CATALOG["MiMo-V2.6-Flash"].thinking.rejection is None


def test_what_a_backend_says_to_a_role_it_does_not_know() -> None:
    rules = CATALOG["Qwen3.8-27B"].messages
    assert stated(rules.developer_rejection).text == "Unexpected message role."
    assert stated(rules.system_rejection).text == "System message must be at the beginning."
    for model_id in ("Qwen3.8-Flash-Next", "GLM-5.3-Flash", "MiniCPM5-2B"):
        rejection = stated(CATALOG[model_id].messages.developer_rejection)
        assert rejection.render(index=0, role="developer") == (
            "Failed to deserialize the JSON body into the target type: messages[0]: unknown role: developer"
        )


def test_the_wider_card_takes_stop_n_and_user() -> None:
    model = CATALOG[DOUBLEWORD]
    assert model.extra_parameters == ("stop", "n", "user")
    assert model.supported_parameters[-3:] == ("stop", "n", "user")


def test_limits_of_speech_and_decisions() -> None:
    assert CATALOG["OmniVoice"].max_characters == 4096
    assert CATALOG["Clef"].max_images == 4
    assert "videos" not in CATALOG["Clef"].supported_parameters
    assert "videos" in CATALOG["d3"].supported_parameters


def test_every_card_is_described_in_both_languages() -> None:
    for model in CATALOG.values():
        assert model.description
        assert model.describe("zh-hans") != model.describe("en")
        assert len(model.notes_in("zh-hans")) == len(model.notes_in("en"))
        assert len(model.unverified_in("zh-hans")) == len(model.unverified_in("en"))


def test_created_is_the_day_the_card_was_verified() -> None:
    assert CATALOG["d3"].created == 1_792_368_000  # 2026-10-19T00:00:00Z


def test_an_unknown_model_is_permissive() -> None:
    model = unknown_model("somebody/else")
    assert (model.id, model.name, model.known) == ("somebody/else", "somebody/else", False)
    assert model.sees_images
    assert model.efforts == tuple(SEVEN.split())
    assert model.messages.developer == "unverified"
    assert not model.messages.rejects_misplaced_system
    assert Catalog().card_for("somebody/else") == model


def write(tmp_path: Path, text: str, name: str = "mine.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_short_card_gets_sensible_defaults(tmp_path: Path) -> None:
    model = load(write(tmp_path, '[[model]]\nid = "tiny"\nfamily = "Mine"'))["tiny"]
    assert (model.name, model.card_title, model.owned_by) == ("tiny", "tiny", "mine")
    assert model.endpoint_path == "/v1/chat/completions"
    assert (model.sees_images, model.can_think, model.json_output) == (False, False, True)


def test_a_card_with_tiers_is_switched_by_reasoning_effort(tmp_path: Path) -> None:
    model = load(write(tmp_path, '[[model]]\nid = "m"\nthinking.efforts = ["low", "high"]'))["m"]
    assert model.effort_has_effect


def test_a_later_file_replaces_a_card_in_place_and_adds_new_ones(tmp_path: Path) -> None:
    mine = write(tmp_path, '[[model]]\nid = "GLM-5.3-Flash"\ncontext_length = 9\n[[model]]\nid = "new"')
    catalog = load(BUNDLED, mine)
    assert list(catalog) == [*CATALOG, "new"]
    assert catalog["GLM-5.3-Flash"].context_length == 9
    assert catalog["GLM-5.3-Flash"].efforts == ()


BAD_FILES = [
    ("[[model]]\nid = ", ": not valid TOML: Invalid value (at end of document)"),
    ("[[model]]\nid = 'a'\ncolour = = 1", ": not valid TOML: Invalid value (at line 3, column 10)"),
    ("[[model]]\nname = 'x'", ": model number 1: field id: is required"),
    ("[[model]]\nid = ''", ": model number 1: field id: must not be empty"),
    ("[[model]]\nid = 5", ": model number 1: field id: expected a string, got 5"),
    (
        "[[model]]\nid = 'a'\ncontext_lenght = 5",
        ": model a: field context_lenght: unknown field (did you mean context_length?)",
    ),
    ("[[model]]\nid = 'a'\nzzz = 5", ": model a: field zzz: unknown field"),
    ("models = []", ": field models: unknown field (did you mean model?)"),
    ("[[model]]\nid='a'\ncontext_length = '8k'", ": model a: field context_length: expected a whole number, got '8k'"),
    ("[[model]]\nid='a'\ncontext_length = true", ": model a: field context_length: expected a whole number, got True"),
    ("[[model]]\nid='a'\ncontext_length = 0", ": model a: field context_length: must be at least 1, got 0"),
    (
        "[[model]]\nid='a'\nendpoint = 'video'",
        ": model a: field endpoint: unknown value 'video', expected one of chat, ocr, speech, systemone",
    ),
    ("[[model]]\nid='a'\n[[model]]\nid='a'", ": model a: is described twice in this file"),
    (
        "[[model]]\nid='a'\nthinking.efforts=['low']\nthinking.default_effort='high'",
        ": model a: field thinking.default_effort: 'high' is not among the efforts (low)",
    ),
    (
        "[[model]]\nid='a'\nthinking.efforts=['low', 3]",
        ": model a: field thinking.efforts: item 1: expected a string, got 3",
    ),
    (
        "[[model]]\nid='a'\nthinking.efforts=['loud']",
        ": model a: field thinking.efforts: unknown value 'loud', expected some of "
        "none, minimal, low, medium, high, xhigh, max",
    ),
    ("[[model]]\nid='a'\nextra_parameters=['n', 'n']", ": model a: field extra_parameters: names a value twice"),
    (
        "[[model]]\nid='a'\nthinking.switch='reasoning_effort'",
        ": model a: field thinking.efforts: is required where reasoning_effort is the switch",
    ),
    (
        "[[model]]\nid='a'\nthinking.by_default=true",
        ': model a: field thinking.by_default: cannot be true with switch "none"',
    ),
    (
        "[[model]]\nid='a'\nthinking.efforts=['low']\nthinking.rejection={status=500, text='no'}",
        ": model a: field thinking.rejection.status: expected 400 or 422, got 500",
    ),
    (
        "[[model]]\nid='a'\nmessages.developer='rejected'",
        ': model a: field messages.developer_rejection: goes with developer = "rejected", and only with it',
    ),
    ("[[model]]\nid='a'\nthinking=3", ": model a: field thinking: expected a table, got 3"),
    (
        "[[model]]\nid='a'\nusage.top_level_reasoning_tokens='maybe'",
        ": model a: field usage.top_level_reasoning_tokens: expected true, false or \"unverified\", got 'maybe'",
    ),
    ("verified_on = 'today'", ": field verified_on: expected a date like 2026-10-19, got 'today'"),
    ("model = 3", ": field model: expected [[model]] tables, got 3"),
    ("model = [3]", ": field model: expected [[model]] tables"),
]


@pytest.mark.parametrize(("text", "problem"), BAD_FILES)
def test_a_bad_file_names_file_model_field_and_fault(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(CatalogError) as caught:
        load(path)
    assert str(caught.value) == f"{path}{problem}"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"absent\.toml: cannot be read: .*No such file"):
        load(tmp_path / "absent.toml")
