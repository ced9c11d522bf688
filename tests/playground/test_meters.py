"""Under an answer stand its tokens and its exact points."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import Team, User
from billing.models import Charge, Outcome, Source, UsageRecord
from playground.meters import meters_of
from playground.models import Turn
from playground.transcript import METER_PAUSES_SECONDS
from tests.playground.conftest import begin

STARTED_AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def answer(person: User, team: Team) -> Turn:
    turn = begin(person, team).answer
    turn.state, turn.content, turn.request_id, turn.finish_reason = Turn.State.DONE, "Hi.", uuid.uuid4(), "stop"
    turn.save()
    return turn


def record(turn: Turn, **fields: Any) -> UsageRecord:
    return UsageRecord.objects.create(
        **{
            "id": turn.request_id,
            "team_id": turn.conversation.team_id,
            "model": turn.model,
            "endpoint": "chat",
            "source": Source.PLAYGROUND,
            "status": 200,
            "outcome": Outcome.OK,
            "prompt_tokens": 1_000,
            "cached_tokens": 400,
            "completion_tokens": 200,
            "reasoning_tokens": 50,
            "started_at": STARTED_AT,
            "first_byte_at": STARTED_AT + timedelta(seconds=0.25),
            "finished_at": STARTED_AT + timedelta(seconds=4.25),
        }
        | fields
    )


def rate(made: UsageRecord) -> None:
    """600·140,000 + 400·2,800 + 200·280,000 = 141,120,000 ppt."""
    for meter, units, price_ppt in (("input", 600, 140_000), ("cache_read", 400, 2_800), ("output", 200, 280_000)):
        Charge.objects.create(
            record=made,
            meter=meter,
            units=units,
            price_ppt=price_ppt,
            amount_ppt=units * price_ppt,
            created_at=STARTED_AT,
        )
    made.rated_at = STARTED_AT + timedelta(seconds=5)
    made.save()


def meter(client: Client, turn: Turn, *, attempt: int = 0) -> str:
    url = reverse("playground:meter", args=[turn.conversation_id, turn.pk])
    response = client.get(url, {"attempt": attempt}, headers={"HX-Request": "true"})
    return re.sub(r"\s+", " ", response.content.decode())


@pytest.fixture
def browser(client: Client, person: User) -> Client:
    client.force_login(person)
    return client


def shown(html: str) -> dict[str, str]:
    return dict(re.findall(r"<dt>([^<]+)</dt><dd[^>]*>([^<]+)</dd>", html))


@pytest.mark.django_db
def test_a_rated_answer_shows_every_number_exactly(browser: Client, answer: Turn) -> None:
    rate(record(answer))
    html = meter(browser, answer)
    assert shown(html) == {
        "in": "1,000",
        "cached": "400",
        "out": "200",
        "of it thinking": "50",
        "points": "0.00014112",
        "first token": "0.25 s",
        "speed": "50 tokens/s",
        "finish": "stop",
    }
    assert "hx-get" not in html


@pytest.mark.django_db
def test_points_are_pending_until_rated_and_asked_for_again(browser: Client, answer: Turn) -> None:
    record(answer)
    html = meter(browser, answer)
    assert shown(html)["points"] == "pending…"
    assert 'meter/?attempt=1"' in html
    assert 'hx-trigger="load delay:400ms"' in html


@pytest.mark.django_db
def test_asking_for_the_points_ends(browser: Client, answer: Turn) -> None:
    html = meter(browser, answer, attempt=len(METER_PAUSES_SECONDS))
    assert shown(html) == {"points": "not yet priced", "finish": "stop"} or shown(html) == {"points": "not yet priced"}
    assert "hx-get" not in html


@pytest.mark.django_db
def test_a_failed_call_costs_nothing_and_is_not_waited_for(browser: Client, answer: Turn) -> None:
    record(
        answer,
        status=400,
        outcome=Outcome.ERROR,
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=0,
        reasoning_tokens=0,
    )
    html = meter(browser, answer)
    assert shown(html)["points"] == "0"
    assert "hx-get" not in html


@pytest.mark.django_db
def test_estimates_and_missing_rates_are_said(browser: Client, answer: Turn) -> None:
    made = record(answer, estimated=True, unpriced=True)
    made.rated_at = STARTED_AT
    made.save()
    html = meter(browser, answer)
    assert "estimated</span>" in html
    assert "unpriced</span>" in html
    assert shown(html)["points"] == "0"


@pytest.mark.django_db
def test_meters_of_a_whole_page_take_two_queries(answer: Turn, django_assert_num_queries: Any) -> None:
    rate(record(answer))
    with django_assert_num_queries(2):
        assert answer.request_id is not None
        assert meters_of([answer.request_id, None])[answer.request_id].amount_ppt == 141_120_000


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("content", "reasoning", "words"),
    [("", "long thoughts", "Thinking used up max tokens"), ("half of", "", "because it reached max tokens")],
)
def test_an_answer_cut_by_its_length_says_why(
    browser: Client, answer: Turn, content: str, reasoning: str, words: str
) -> None:
    Turn.objects.filter(pk=answer.pk).update(content=content, reasoning=reasoning, finish_reason="length")
    url = reverse("playground:turn", args=[answer.conversation_id, answer.pk])
    assert words in browser.get(url, headers={"HX-Request": "true"}).content.decode()
