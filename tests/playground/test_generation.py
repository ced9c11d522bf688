"""A generation belongs to the server: whoever reads, leaves or returns, it runs once and is kept."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from accounts.models import Team, User
from billing.models import Outcome, UsageRecord
from gateway.caller import Caller
from gateway.runtime import Runtime
from playground import generation, turn_store
from playground.models import CUT_OFF_AFTER_SECONDS, Turn
from playground.turn_store import read
from tests.playground.conftest import Serve, begin


@pytest.fixture
def turn(person: User, team: Team) -> Turn:
    return begin(person, team, "Tell me about tides.").answer


async def first_text(turn_id: int) -> str:
    """Read until something has come, then leave."""
    async for progress in generation.follow(turn_id):
        if progress.content:
            return progress.content
    raise AssertionError("the answer had no text")


async def whole_text(turn_id: int) -> str:
    return "".join([progress.content async for progress in generation.follow(turn_id)])


async def saved(turn: Turn) -> Turn:
    await turn.arefresh_from_db()
    return turn


async def record_of(turn: Turn, running: Runtime) -> UsageRecord:
    """The usage record, once the journal is shipped."""
    running.shipper.stop()
    assert turn.request_id is not None
    return await UsageRecord.objects.aget(pk=turn.request_id)


def test_an_answer_is_read_kept_and_metered(
    serve: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        text = await whole_text(turn.pk)
        await saved(turn)
        assert turn.state == Turn.State.DONE
        assert turn.content == text
        assert "demo" in text
        assert turn.finish_reason == "stop"
        record = await record_of(turn, running)
        assert (record.outcome, record.team_id, record.member_id) == (Outcome.OK, caller.team_id, caller.member_id)

    serve(scenario)


def test_thinking_is_kept_apart_and_timed(serve: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]) -> None:
    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body | {"reasoning_effort": "low"})
        progress = [progress async for progress in generation.follow(turn.pk)]
        await saved(turn)
        assert turn.reasoning == "".join(step.reasoning for step in progress) != ""
        assert turn.thinking_seconds is not None
        assert turn.reasoning not in turn.content

    serve(scenario)


def test_everybody_leaving_does_not_end_it(serve: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]) -> None:
    async def scenario(running: Runtime) -> None:
        running_generation = generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        await first_text(turn.pk)
        await running_generation.task
        await saved(turn)
        assert turn.state == Turn.State.DONE
        assert turn.finish_reason == "stop"
        assert (await record_of(turn, running)).outcome == Outcome.OK

    serve(scenario)


def test_coming_back_shows_everything_and_generates_nothing(
    serve_slowly: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        before = await first_text(turn.pk)
        again = await first_text(turn.pk)
        assert again.startswith(before)
        await generation.stop(turn_id=turn.pk)
        rest = await whole_text(turn.pk)
        assert rest.startswith(again)
        assert await whole_text(turn.pk) == rest
        await saved(turn)
        running.shipper.stop()
        assert [record.pk async for record in UsageRecord.objects.all()] == [turn.request_id]

    serve_slowly(scenario)


def test_stop_ends_the_upstream_call_and_keeps_the_text(
    serve_slowly: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        await first_text(turn.pk)
        await generation.stop(turn_id=turn.pk)
        text = await whole_text(turn.pk)
        await saved(turn)
        assert turn.state == Turn.State.STOPPED
        assert turn.content == text != ""
        assert turn.finish_reason == ""
        record = await record_of(turn, running)
        assert record.outcome == Outcome.STOPPED
        assert record.completion_tokens > 0

    serve_slowly(scenario)


def test_stop_from_another_process_arrives_by_the_database(
    serve_slowly: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        await first_text(turn.pk)
        # What another process does: it does not know the generation.
        await Turn.objects.filter(pk=turn.pk).aupdate(stop_requested=True)
        await whole_text(turn.pk)
        assert (await saved(turn)).state == Turn.State.STOPPED

    serve_slowly(scenario)


def test_another_process_reads_what_is_saved(
    serve_slowly: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        async for progress in generation._follow_elsewhere(turn.pk):
            if progress.content:
                break
        await generation.stop(turn_id=turn.pk)
        text = "".join([progress.content async for progress in generation._follow_elsewhere(turn.pk)])
        assert text == (await saved(turn)).content

    serve_slowly(scenario)


def test_a_deleted_conversation_ends_its_generation(
    serve_slowly: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        running_generation = generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        await first_text(turn.pk)
        await sync_to_async(turn.conversation.delete)()
        await running_generation.task
        assert running_generation.state == Turn.State.STOPPED
        assert not running_generation.finish_reason

    serve_slowly(scenario)


def test_a_refusal_is_kept_with_its_status_text_and_request_id(
    serve: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        body = chat_body | {"model": "Qwen3.8-27B", "reasoning_effort": "high"}
        await generation.start(turn_id=turn.pk, caller=caller, body=body).task
        await saved(turn)
        assert turn.state == Turn.State.FAILED
        assert turn.error is not None
        assert turn.error["status"] == 400
        assert turn.error["message"].startswith("Unexpected reasoning effort high.")
        record = await record_of(turn, running)
        assert (record.status, record.outcome) == (400, Outcome.ERROR)

    serve(scenario)


def test_an_unknown_model_is_a_failed_turn_too(
    serve: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        await generation.start(turn_id=turn.pk, caller=caller, body=chat_body | {"model": "nothing"}).task
        await saved(turn)
        assert turn.error == {"status": 400, "message": "Requested model nothing not supported", "code": None}

    serve(scenario)


def test_a_server_that_stops_keeps_the_text_and_says_so(
    serve_slowly: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        text = await first_text(turn.pk)
        await generation.shut_down()
        await saved(turn)
        assert turn.state == Turn.State.FAILED
        assert turn.error == {"status": 500, "message": "", "code": "interrupted"}
        assert turn.content.startswith(text)
        assert (await record_of(turn, running)).outcome == Outcome.INTERRUPTED

    serve_slowly(scenario)


def test_a_turn_whose_process_was_killed_is_shown_as_cut_off(serve: Serve, turn: Turn) -> None:
    async def scenario(running: Runtime) -> None:
        long_ago = timezone.now() - timedelta(seconds=CUT_OFF_AFTER_SECONDS + 1)
        await Turn.objects.filter(pk=turn.pk).aupdate(content="half of", touched_at=long_ago)
        assert await whole_text(turn.pk) == "half of"
        read_turn = await read(turn_id=turn.pk)
        assert read_turn is not None
        assert read_turn.state == Turn.State.FAILED
        assert read_turn.error is not None
        assert read_turn.error["code"] == "interrupted"

    serve(scenario)


def test_the_first_piece_does_not_wait_for_others(
    serve: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "UPDATE_SECONDS", 3_600)

    async def scenario(running: Runtime) -> None:
        generation.start(turn_id=turn.pk, caller=caller, body=chat_body)
        # A reader that is there before anything has come.
        assert await first_text(turn.pk)

    serve(scenario)


def test_what_a_killed_process_left_is_closed_soon_after_the_next_start(
    serve_slowly: Serve, turn: Turn, person: User, team: Team, caller: Caller, chat_body: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    left_behind = begin(person, team).answer
    monkeypatch.setattr(generation, "RENEWED_WITHIN_SECONDS", 2.5)

    async def scenario(running: Runtime) -> None:
        alive = generation.start(turn_id=turn.pk, caller=caller, body=chat_body | {"max_tokens": 100_000})
        await generation._close_left_behind()
        await saved(left_behind)
        assert left_behind.state == Turn.State.FAILED
        assert left_behind.error is not None
        assert left_behind.error == {"status": 500, "message": "", "code": "interrupted", "presumed": True}
        await saved(turn)
        assert turn.state == Turn.State.STREAMING
        alive.stop()
        await alive.task

    serve_slowly(scenario)


def test_a_turn_taken_for_cut_off_while_its_process_was_kept_waiting_goes_on(
    serve_slowly: Serve, turn: Turn, caller: Caller, chat_body: dict[str, Any]
) -> None:
    async def scenario(running: Runtime) -> None:
        alive = generation.start(turn_id=turn.pk, caller=caller, body=chat_body | {"max_tokens": 100_000})
        text = await first_text(turn.pk)
        assert await sync_to_async(Turn.objects.filter(pk=turn.pk).close)() == 1
        while not (await saved(turn)).is_streaming:  # noqa: ASYNC110  the database tells nobody
            await asyncio.sleep(0.05)
        assert (turn.error, alive.ended) == (None, False)
        assert text
        await generation.shut_down()
        # What its own process says of it stands.
        await turn_store.save(turn_id=turn.pk, content="late")
        await saved(turn)
        assert (turn.state, turn.error) == ("failed", {"status": 500, "message": "", "code": "interrupted"})
        assert turn.content != "late"

    serve_slowly(scenario)


@pytest.mark.django_db
def test_a_turn_that_is_still_filled_is_left_alone(turn: Turn) -> None:
    assert Turn.objects.close_cut_off() == 0
    turn.refresh_from_db()
    assert turn.state == Turn.State.STREAMING
