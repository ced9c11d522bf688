"""The rate card: what the built-in file holds, what is in force when, and which entries are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.utils import timezone

from billing.models import Rate
from billing.rates import RateCard, RateFileError, load_rates, prices_at

pytestmark = pytest.mark.django_db
CARD_DATE = datetime(2026, 10, 19, tzinfo=UTC)
SMALL = {"input": 35_000, "output": 70_000, "cache_read": 700}
MIDDLE = {"input": 140_000, "output": 280_000, "cache_read": 2_800}
LARGE = {"input": 280_000, "output": 560_000, "cache_read": 5_600}
DECISIONS = {"input": 35_000, "output": 0}


def rate_of(*, model: str = "M", meter: str = "input", rate: str = "0.5", effective_from: datetime = CARD_DATE) -> Rate:
    return Rate(model=model, meter=meter, rate=Decimal(rate), effective_from=effective_from)


def test_the_built_in_card_prices_every_published_model() -> None:
    load_rates()
    card = RateCard.load()
    assert {model: card.prices(model, CARD_DATE) for model in Rate.objects.values_list("model", flat=True)} == {
        "DeepSeek-V4-Flash": MIDDLE,
        "DeepSeek-V4-Flash-Vision-Exp": MIDDLE,
        "DeepSeek-V4.1-Flash": LARGE,
        "Qwen3.8-Flash-Next": MIDDLE,
        "Qwen3.8-27B": SMALL,
        "GLM-5.3-Flash": LARGE,
        "MiMo-V2.6-Flash": MIDDLE,
        "MiniCPM5-2B": SMALL,
        "MiniCPM-V-4.7-1B": SMALL,
        "MiniCPM-V-4.7-35B-A3B": SMALL,
        "Gemma-4-31B-IT": SMALL,
        "Clef": DECISIONS,
        "d3": DECISIONS,
        "d3-flash": DECISIONS,
        "OmniVoice": {"character": 35_000},
        "MinerU2.5-Pro": {"page": 1_000_000_000},
    }


def test_loading_twice_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("load_rates")
    call_command("load_rates")
    assert capsys.readouterr().out.splitlines() == ["41 rates added, 0 unchanged.", "0 rates added, 41 unchanged."]


def test_nothing_is_priced_before_the_card_begins() -> None:
    load_rates()
    assert RateCard.load().prices("d3", CARD_DATE - timedelta(microseconds=1)) == {}
    assert RateCard.load().prices("unheard-of", CARD_DATE) == {}


def test_each_moment_has_the_rates_in_force_then() -> None:
    change = CARD_DATE + timedelta(days=30)
    Rate.objects.bulk_create(
        [
            rate_of(),
            rate_of(meter="output", rate="1"),
            rate_of(rate="0.25", effective_from=change),
            rate_of(model="N", rate="9", effective_from=change),
        ]
    )
    before = {"input": 500_000, "output": 1_000_000}
    after = {"input": 250_000, "output": 1_000_000}
    assert prices_at("M", change - timedelta(microseconds=1)) == before
    assert prices_at("M", change) == after
    assert RateCard.load().rates("M", change) == {"input": Decimal("0.25"), "output": Decimal(1)}
    in_force = Rate.objects.in_force(change).values_list("model", "meter", "rate")
    assert set(in_force) == {
        ("M", "input", Decimal("0.25")),
        ("M", "output", Decimal(1)),
        ("N", "input", Decimal(9)),
    }


def test_a_rate_that_only_sql_could_have_written_leaves_its_meter_unpriced(caplog: pytest.LogCaptureFixture) -> None:
    Rate.objects.bulk_create([rate_of(rate="0.0000001"), rate_of(meter="output")])
    assert prices_at("M", CARD_DATE) == {"output": 500_000}
    assert "cannot be charged" in caplog.text


@pytest.mark.parametrize("rate", ["-1", "0.0000001", "90001"])
def test_a_rate_without_an_exact_price_is_refused(rate: str) -> None:
    with pytest.raises(ValidationError) as refused:
        rate_of(rate=rate).full_clean()
    assert set(refused.value.message_dict) == {"rate"}


def test_a_rate_in_force_is_neither_changed_nor_removed() -> None:
    rate = rate_of()
    rate.save()
    rate.rate = Decimal(2)
    for attempt in (rate.full_clean, rate.save, rate.delete):
        with pytest.raises(ValidationError):
            attempt()
    # Moving it into the future first does not help.
    rate.effective_from = timezone.now() + timedelta(days=1)
    with pytest.raises(ValidationError):
        rate.save()
    assert Rate.objects.get().rate == Decimal("0.5")


def test_a_rate_to_come_may_still_be_corrected() -> None:
    rate = rate_of(effective_from=timezone.now() + timedelta(days=1))
    rate.save()
    rate.rate = Decimal(2)
    rate.full_clean()
    rate.save()
    rate.delete()
    assert not Rate.objects.exists()


def test_nothing_is_slipped_into_a_past_that_was_charged() -> None:
    rate_of().save()
    with pytest.raises(ValidationError) as refused:
        rate_of(effective_from=CARD_DATE + timedelta(days=1)).full_clean()
    assert set(refused.value.message_dict) == {"effective_from"}
    rate_of(meter="output", effective_from=CARD_DATE + timedelta(days=1)).full_clean()


HEADER = 'effective_from = 2026-10-19T00:00:00Z\n[models.A]\ninput = 1\n[models."B.5"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "\ninput = -1", ":6: B.5: a rate is not negative, not -1"),
        (HEADER + "input = nan", ":5: B.5: a rate is a number, not NaN"),
        (HEADER + "input = 0.0000001", ":5: B.5: a rate of input has at most 6 decimals, not 1E-7"),
        (HEADER + 'input = "1"', ":5: B.5: input is a number, not '1'"),
        (HEADER + "input = true", ":5: B.5: input is a number, not True"),
        (HEADER + "tokens = 1", ":5: B.5: unknown meter 'tokens' (one of input, cache_read, output, page, character)"),
        (HEADER, ":4: B.5 has no rates"),
        ("[models.A]\ninput = 1", ":1: effective_from is a date and time with its offset"),
        ("effective_from = 2026-10-19\n[models.A]\ninput = 1", ":1: effective_from is a date and time with its offset"),
        ("effective_from = 2026-10-19T00:00:00Z", ":1: no [models.…] table"),
        ("effective_from = 2026-10-19T00:00:00Z\nmodel = 1", ":2: unknown key 'model'"),
        ("a = = 1", "at line 1"),
    ],
)
def test_nonsense_in_a_file_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rates.toml"
    path.write_text(text)
    with pytest.raises(CommandError) as refused:
        call_command("load_rates", str(path))
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)
    assert not Rate.objects.exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RateFileError, match=r"none\.toml"):
        load_rates(tmp_path / "none.toml")


def test_a_file_cannot_change_what_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "rates.toml"
    path.write_text("effective_from = 2026-10-19T00:00:00Z\n[models.A]\ninput = 1\n")
    load_rates(path)
    path.write_text("effective_from = 2026-10-19T00:00:00Z\n[models.A]\ninput = 2\n")
    with pytest.raises(RateFileError, match="needs a later effective_from"):
        load_rates(path)
    path.write_text("effective_from = 2026-10-20T00:00:00Z\n[models.A]\ninput = 2\n")
    with pytest.raises(RateFileError, match="has a rate already"):
        load_rates(path)
