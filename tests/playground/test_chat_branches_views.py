"""Views of branches, tools, pictures, JSON and comparisons: what they send to the page and to the model."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import StreamingHttpResponse
from django.test import AsyncClient
from django.urls import reverse

from accounts.models import Team, User
from gateway.runtime import Runtime
from playground.models import Conversation, Image, Turn
from tests.playground.conftest import Serve, begin
from tests.playground.test_chat_views import MESSAGE, browser, events_of

PNG = b"\x89PNG\r\n\x1a\n picture"
TOOLS = json.dumps([{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {}}}}])


async def sent(client: AsyncClient, **data: Any) -> Turn:
    """Its answer, once it is whole."""
    response = await client.post(reverse("playground:send"), MESSAGE | data)
    assert response.status_code == 200, response.content.decode()
    turn = await Turn.objects.filter(role=Turn.Role.ASSISTANT).alatest("pk")
    await events_of(client, turn)
    await turn.arefresh_from_db()
    return turn


def of(turn: Turn, name: str) -> str:
    return reverse(f"playground:{name}", args=[turn.conversation_id, turn.pk])


def test_a_tool_is_called_answered_and_told_to_the_model(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        settings = {"tools": TOOLS}
        answer = await sent(client, message="get_weather please", **settings)
        assert [call["name"] for call in answer.tool_calls] == ["get_weather"]
        assert (answer.content, answer.finish_reason) == ("", "tool_calls")
        events = dict(await events_of(client, answer))
        assert 'name="result"' in events[f"calls-{answer.pk}"]

        refused = await client.post(of(answer, "give_results"), MESSAGE | settings | {"result": ["", ""]})
        assert refused.status_code == 422
        response = await client.post(of(answer, "give_results"), MESSAGE | settings | {"result": '{"degrees": 21}'})
        assert response.status_code == 200
        html = response.content.decode()
        assert '<span class="badge badge-success">answered</span>' in html
        final = await Turn.objects.filter(role=Turn.Role.ASSISTANT).alatest("pk")
        await events_of(client, final)
        await final.arefresh_from_db()
        # The demo says what the tool answered: it has reached the model.
        assert "21" in final.content

    serve(scenario)


def test_calls_come_while_they_grow(serve_slowly: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        data = MESSAGE | {"tools": TOOLS, "message": "get_weather [[calls=2]]"}
        await client.post(reverse("playground:send"), data)
        answer = await Turn.objects.aget(role=Turn.Role.ASSISTANT)
        shown = [data for name, data in await events_of(client, answer) if name == f"calls-{answer.pk}"]
        assert len(shown) > 1
        assert 'class="call-growing"' in shown[0]
        assert shown[-1].count('name="result"') == 2

    serve_slowly(scenario)


def test_json_is_shown_as_it_is_written_and_then_in_order(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        answer = await sent(client, format="json_object")
        assert answer.is_json
        whole = dict(await events_of(client, answer))[f"answer-{answer.pk}"]
        assert json.loads(re.sub(r"<[^>]+>", "", whole.split("<pre")[1].split(">", 1)[1]).replace("&quot;", '"'))
        await Turn.objects.filter(pk=answer.pk).aupdate(content='{"b":1,"a":"<script>"}')
        page = (await client.get(of(answer, "turn"))).content.decode()
        assert page.count('role="tabpanel"') == 2
        assert "<script>" not in page
        await Turn.objects.filter(pk=answer.pk).aupdate(content="# no JSON")
        page = (await client.get(of(answer, "turn"))).content.decode()
        assert "This is not valid JSON, though JSON was asked for." in page
        assert "<h3>" not in page.split('class="answer"')[1].split("turn-foot")[0]

    serve(scenario)


def test_a_picture_is_kept_sent_and_served_to_its_owner(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        upload = SimpleUploadedFile("a.png", PNG, "image/png")
        answer = await sent(client, model="Qwen3.8-27B", message="What is it?", images=[upload])
        # The demo counts what it was shown.
        assert "Images attached: 1" in answer.content
        image = await Image.objects.aget()
        served = await client.get(reverse("playground:image", args=[answer.conversation_id, image.pk]))
        assert (served.content, served["Content-Type"]) == (PNG, "image/png")
        assert served["X-Content-Type-Options"] == "nosniff"
        html = (
            await client.post(
                reverse("playground:code"), {"model": "Qwen3.8-27B", "conversation": str(answer.conversation_id)}
            )
        ).content.decode()
        assert f"picture-{image.pk}.png" in html
        assert "iVBOR" not in html

    serve(scenario)


def test_portable_mode_fits_the_request_and_says_how(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        data = {"model": "Qwen3.8-27B", "effort": "high", "portable": "on"}
        answer = await sent(client, **data)
        assert answer.error is None
        foot = dict(await events_of(client, answer))[f"foot-{answer.pk}"]
        assert "Effort high was sent as xhigh, the nearest that this model takes." in foot
        code = (await client.post(reverse("playground:code"), MESSAGE | data)).content.decode()
        assert "x-portable: 1" in re.sub(r"<[^>]+>", "", code)

    serve(scenario)


def test_paging_deleting_and_having_back(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        first = await sent(client, message="one [[tokens=5]]")
        again = await client.post(of(first, "answer_again"), MESSAGE)
        second = await Turn.objects.filter(role=Turn.Role.ASSISTANT).alatest("pk")
        assert f'id="turn-{second.pk}"' in again.content.decode()
        assert f'id="turn-{first.pk}"' not in again.content.decode()
        await events_of(client, second)

        shown = (await client.post(of(first, "show_branch"))).content.decode()
        assert f'id="turn-{first.pk}"' in shown
        assert f'name="parent" id="parent-id" form="composer" value="{first.pk}" hx-swap-oob="true"' in shown

        deleted = await client.post(of(first, "delete_turn"))
        assert f'id="turn-{second.pk}"' in deleted.content.decode()
        undo = json.loads(deleted["HX-Trigger"])["undoable"]
        assert undo == {"text": "Message deleted.", "url": of(first, "restore_turn")}
        assert (await client.get(of(first, "turn"))).status_code == 404
        assert f'id="turn-{first.pk}"' in (await client.post(undo["url"])).content.decode()

    serve(scenario)


def test_a_deleted_conversation_stops_being_written(serve_slowly: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        await client.post(reverse("playground:send"), MESSAGE)
        answer = await Turn.objects.aget(role=Turn.Role.ASSISTANT)
        await client.post(reverse("playground:delete", args=[answer.conversation_id]))
        await client.post(reverse("playground:restore", args=[answer.conversation_id]))
        await events_of(client, answer)
        await answer.arefresh_from_db()
        assert answer.state == Turn.State.STOPPED

    serve_slowly(scenario)


COMPARED = {"model": ["DeepSeek-V4-Flash", "Qwen3.8-27B", "MiniCPM5-2B"], "message": "Explain dunes.", "effort": "high"}


def test_a_comparison_streams_every_answer_in_one_connection(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        response = await client.post(reverse("playground:compare"), COMPARED)
        conversation = await Conversation.objects.aget()
        assert response["HX-Push-Url"] == f"/playground/compare/{conversation.pk}/"
        html = response.content.decode()
        assert html.count("sse-connect=") == 1
        stream = await client.get(reverse("playground:compare_stream", args=[conversation.pk]))
        text = b"".join([part async for part in cast(StreamingHttpResponse, stream)]).decode()
        answers = [turn async for turn in conversation.turns.filter(role=Turn.Role.ASSISTANT)]
        assert [turn.model for turn in answers] == COMPARED["model"]
        for turn in answers:
            assert turn.state == Turn.State.DONE
            assert text.count(f"event: foot-{turn.pk}\n") == 1
        assert text.count("event: close\n") == 1
        assert "sent as xhigh" in text

    serve(scenario)


def test_a_reader_who_leaves_a_comparison_leaves_it_going_on(serve_slowly: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        await client.post(reverse("playground:compare"), COMPARED | {"message": "Explain dunes. [[tokens=30]]"})
        answers = [turn async for turn in Turn.objects.filter(role=Turn.Role.ASSISTANT)]
        url = reverse("playground:compare_stream", args=[answers[0].conversation_id])
        for _ in range(2):
            stream = cast(StreamingHttpResponse, await client.get(url))
            parts = aiter(stream)
            assert await anext(parts)
            await parts.aclose()  # type: ignore[attr-defined]
            stream.close()
        for answer in answers:
            await events_of(client, answer)
            await answer.arefresh_from_db()
            assert answer.state == Turn.State.DONE

    serve_slowly(scenario)


def test_a_chat_goes_on_with_the_answer_one_likes(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        await client.post(reverse("playground:compare"), COMPARED)
        answer = await Turn.objects.aget(model="Qwen3.8-27B")
        response = await client.post(of(answer, "show_branch"), headers={"HX-Request": ""})
        assert response["Location"] == f"/playground/c/{answer.conversation_id}/"
        page = (await client.get(response["Location"], headers={"HX-Request": ""})).content.decode()
        assert f'id="turn-{answer.pk}"' in page
        assert '<option value="Qwen3.8-27B" selected>' in page

    serve(scenario)


@pytest.mark.parametrize("models", [[], ["Qwen3.8-27B"], ["Qwen3.8-27B", "nothing"]])
def test_a_comparison_needs_models_to_compare(serve: Serve, person: User, models: list[str]) -> None:
    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        response = await client.post(reverse("playground:compare"), COMPARED | {"model": models})
        assert response.status_code == 422
        assert await Conversation.objects.acount() == 0

    serve(scenario)


def test_a_chat_is_no_comparison(serve: Serve, person: User, team: Team) -> None:
    exchange = begin(person, team)

    async def scenario(running: Runtime) -> None:
        client = await browser(person)
        for name in ("comparison", "compare_stream"):
            url = reverse(f"playground:{name}", args=[exchange.conversation.pk])
            assert (await client.get(url)).status_code == 404

    serve(scenario)
