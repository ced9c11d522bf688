"""Decisions on the page: questions built in a form, answers as bars, each decision kept for its owner."""

from __future__ import annotations

import asyncio
import html
import re
import uuid
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient
from django.urls import reverse

from accounts.models import Team, User
from billing.models import Source, UsageRecord
from gateway.runtime import Runtime
from playground import own_tasks
from playground.history import Decision, DecisionPicture
from tests.documents import data_url, png
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream, Received, Wire
from tests.playground.conftest import Serve
from tests.playground.htmx_client import htmx_client

DECIDE = reverse("playground:decide")
# As a form sends it: three questions, some of their fields empty.
FORM: dict[str, Any] = {
    "model": "d3",
    "state": "The parcel is late.\r\nNobody answers.",
    "question": ["a", "b", "c"],
    "type-a": "noul",
    "name-a": "angry",
    "instructions-a": "Is the customer angry?",
    "true-a": "",
    "false-a": "calm",
    "type-b": "choice",
    "name-b": "team",
    "option-b": ["billing", "", "delivery"],
    "about-b": ["Invoices", "", ""],
    "type-c": "score",
    "name-c": "urgency",
    "level-c": ["later", "", "now"],
}
QUESTIONS = {
    "angry": {"type": "noul", "instructions": "Is the customer angry?", "criteria": {"false": "calm"}},
    "team": {"type": "choice", "criteria": {"billing": "Invoices", "delivery": None}},
    "urgency": {"type": "score", "criteria": ["later", "now"]},
}
ANSWERS = {
    "angry": {"type": "noul", "noul": 0.25, "probabilities": {"false": 0.75, "true": 0.25}},
    "team": {"type": "choice", "choice": "delivery", "confidence": 0.5,
             "probabilities": {"billing": 0.1, "delivery": 0.9}},
    "urgency": {"type": "score", "score": 0.4, "confidence": 0.1, "legend": {"0": "later", "1": "now"},
                "probabilities": {"0": 0.6, "1": 0.4}},
}  # fmt: skip
MP4, MOV, WEBM = b"\0\0\0\x18ftypmp42....", b"\0\0\0\x14ftypqt  ....", b"\x1aE\xdf\xa3...."
DECIDED = {"model": "d3", "answers": ANSWERS, "usage": {"input_tokens": 40, "output_tokens": 3}}


async def decide(client: AsyncClient, **fields: Any) -> Any:
    return await client.post(DECIDE, FORM | fields)


def address(name: str, decision: Decision, *arguments: object) -> str:
    return reverse(f"playground:{name}", args=[decision.pk, *arguments])


def kept(person: User, team: Team, **fields: Any) -> dict[str, Any]:
    given = {"state": "A secret", "questions": QUESTIONS, "answers": DECIDED, "request_id": uuid.uuid4()}
    return {"owner": person, "team": team, "model": "d3"} | given | fields


def test_a_form_becomes_a_request_and_its_answer_bars(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(DECIDED))

    async def scenario(running: Runtime) -> None:
        response = await decide(await htmx_client(person))
        assert upstream.received[0].json() == {
            "model": "d3",
            "state": "The parcel is late.\nNobody answers.",
            "questions": QUESTIONS,
        }
        decision = await Decision.objects.aget()
        assert response["HX-Push-Url"] == address("decision", decision)
        shown = response.content.decode()
        assert re.findall(r'bar-percent">([^<]+)<', shown) == ["75.0%", "25.0%", "10.0%", "90.0%", "60.0%", "40.0%"]
        assert re.findall(r'<rect width="([^"]+)"', shown) == ["75.00", "25.00", "10.00", "90.00", "60.00", "40.00"]
        assert re.findall(r'answered-verdict"><strong>([^<]+)<', shown) == ["false", "delivery", "0.40"]
        # The answer as it came, as JSON.
        assert '"input_tokens": 40' in html.unescape(re.sub(r"<[^>]+>", "", shown))
        running.shipper.stop()
        record = await UsageRecord.objects.aget(pk=decision.request_id)
        assert (record.prompt_tokens, record.source, record.endpoint) == (40, Source.PLAYGROUND, "systemone")

    serve_told(scenario)


def test_every_type_of_question_is_answered_by_the_demo(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        response = await decide(await htmx_client(person))
        assert (response.status_code, response.content.decode().count('<li class="bar')) == (200, 6)

    serve(scenario)


def test_pictures_go_along_are_kept_and_can_be_sent_again(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(DECIDED), replies.answer(DECIDED))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        file = SimpleUploadedFile("a.png", png(2, 2), content_type="image/png")
        await decide(client, images=file)
        sent = [data_url(png(2, 2), "image/png")]
        assert upstream.received[0].json()["images"] == sent
        decision = await Decision.objects.aget()
        picture = await decision.pictures.aget()
        shown = await client.get(address("decision_picture", decision, picture.pk))
        assert (shown["Content-Type"], shown.content) == ("image/png", png(2, 2))
        again = (await client.get(address("decision", decision), headers={"HX-Request": ""})).content.decode()
        assert f'name="picture" value="{picture.pk}" checked' in again
        await decide(client, picture=str(picture.pk))
        assert upstream.received[1].json()["images"] == sent

    serve_told(scenario)


def test_videos_go_beside_the_pictures_to_models_that_see_them(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(DECIDED))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        # Each is known by its first bytes, whatever it is called.
        files = [SimpleUploadedFile("a", data) for data in (MP4, png(2, 2), WEBM, MOV)]
        assert (await decide(client, images=files)).status_code == 200
        sent = upstream.received[0].json()
        assert sent["images"] == [data_url(png(2, 2), "image/png")]
        types = ("video/mp4", "video/webm", "video/quicktime")
        assert sent["videos"] == [data_url(*pair) for pair in zip((MP4, WEBM, MOV), types, strict=True)]
        decision = await Decision.objects.aget()
        again = (await client.get(address("decision", decision), headers={"HX-Request": ""})).content.decode()
        assert (again.count("<video src="), again.count('name="picture"')) == (3, 4)
        # The very request as code: what is chosen anew, and what is sent again.
        code = reverse("playground:decisions_code")
        video = await decision.pictures.filter(media_type="video/webm").aget()
        for fields in ({"attached": "video/mp4"}, {"picture": video.pk}):
            shown = html.unescape((await client.post(code, FORM | fields)).content.decode())
            assert ("video.mp4" in shown, "picture.png" in shown) == (True, False)

    serve_told(scenario)


def test_a_model_that_sees_no_videos_says_so(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        page = (await client.get(reverse("playground:decisions"), headers={"HX-Request": ""})).content.decode()
        assert ("up to 4 pictures for Clef" in page, "videos for d3, d3-flash" in page) == (True, True)
        for model, status in (("Clef", 422), ("d3-flash", 200)):
            answer = await decide(client, model=model, images=SimpleUploadedFile("a.mp4", MP4))
            assert (answer.status_code, "Clef takes no videos." in answer.content.decode()) == (status, status == 422)

    serve(scenario)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": " "}, "Describe the state first"),
        ({"question": []}, "Add a question first."),
        ({"name-a": " "}, "Give each question a name."),
        ({"name-b": "angry"}, "Two questions are called “angry”."),
        ({"option-b": ["", ""]}, "“team” needs at least one option"),
        ({"level-c": []}, "“urgency” needs at least one level."),
        ({"instructions-a": "", "false-a": ""}, "“angry” needs instructions"),
        ({"model": "Clef"}, "This model cannot be used at the moment."),
        (
            {"images": SimpleUploadedFile("a.txt", b"text")},
            "is neither a PNG, JPEG, GIF or WebP picture nor an MP4 or WebM video",
        ),
        ({"images": SimpleUploadedFile("a.mp4", b"\0\0\0\x18ftypavif")}, "is neither a PNG"),
        ({"images": SimpleUploadedFile("a.png", png(1, 1)[:20])}, "damaged"),
    ],
    ids=["state", "question", "name", "twice", "option", "level", "noul", "model", "text", "still", "picture"],
)
def test_what_cannot_be_asked_is_said_before_the_model_is(
    serve_told: Serve, person: User, upstream: FakeUpstream, fields: dict[str, Any], said: str
) -> None:
    async def scenario(running: Runtime) -> None:
        if isinstance(file := fields.get("images"), SimpleUploadedFile):
            file.seek(0)
        response = await decide(await htmx_client(person), **fields)
        assert (response.status_code, said in response.content.decode()) == (422, True)
        assert upstream.received == []

    serve_told(scenario)


def test_a_refusal_is_explained_with_its_request(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer({"error": {"message": "too long"}}, status=400))

    async def scenario(running: Runtime) -> None:
        response = await decide(await htmx_client(person))
        running.shipper.stop()
        record = await UsageRecord.objects.aget()
        shown = response.content.decode()
        assert (response.status_code, "too long" in shown, str(record.pk) in shown) == (422, True, True)
        assert not await Decision.objects.aexists()

    serve_told(scenario)


def test_a_decision_is_finished_and_kept_when_whoever_asked_has_left(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()

    async def slow(request: Received, wire: Wire) -> None:
        await gate.wait()
        await replies.answer(DECIDED)(request, wire)

    upstream.then(slow)

    async def scenario(running: Runtime) -> None:
        asked = asyncio.ensure_future(decide(await htmx_client(person)))
        await asyncio.to_thread(gate.reached.wait, 30)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert not await Decision.objects.aexists()
        gate.open()
        await asyncio.gather(*own_tasks._tasks)
        assert (await Decision.objects.aget()).answers == DECIDED

    serve_told(scenario)


def test_an_answer_with_nul_is_kept_without(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer({"answers": {"team": {"choice": "a\x00b\\u0000"}}, "usage": {"input_tokens": 1}}))

    async def scenario(running: Runtime) -> None:
        await decide(await htmx_client(person))
        assert (await Decision.objects.aget()).answers["answers"] == {"team": {"choice": "ab\\u0000"}}

    serve_told(scenario)


def test_where_no_model_decides_the_page_says_so(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.models = []

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        for name in ("decisions", "speech"):
            shown = (await client.get(reverse(f"playground:{name}"), headers={"HX-Request": ""})).content.decode()
            assert "No model that could do this is served here" in shown

    serve_told(scenario)


def test_a_question_is_added_with_marks_of_its_own(serve_told: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        marks = set()
        for _ in range(3):
            shown = (await client.get(reverse("playground:decision_question"), {"kind": "score"})).content.decode()
            assert 'data-kind="score"' in shown
            marks.add(re.findall(r'name="question" value="(\w+)"', shown)[0])
        assert len(marks) == 3

    serve_told(scenario)


def test_samples_fill_the_form(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        url = reverse("playground:decisions")
        shown = (await client.get(url, {"sample": "mail"}, headers={"HX-Request": ""})).content.decode()
        assert (shown.count("data-question data-kind"), "My parcel was due" in shown) == (3, True)
        assert (await client.get(url, {"sample": "nothing"})).status_code == 200

    serve(scenario)


NAMES = ["decision", "decision_picture", "decision_points", "delete_decision"]


def test_somebody_elses_decision_does_not_exist(
    serve_told: Serve, person: User, team: Team, stranger: User, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(DECIDED))

    async def scenario(running: Runtime) -> None:
        decision = await Decision.objects.acreate(**kept(person, team))
        picture = await DecisionPicture.objects.acreate(decision=decision, media_type="image/png", data=png(1, 1))
        client = await htmx_client(stranger)
        for name in NAMES:
            url = address(name, decision, *([picture.pk] if name == "decision_picture" else []))
            response = await (client.post(url) if name == "delete_decision" else client.get(url))
            assert response.status_code == 404, name
        assert "A secret" not in (await client.get(reverse("playground:decisions_list"))).content.decode()
        # Nor can its picture be sent along by its number.
        await decide(client, picture=str(picture.pk))
        assert "images" not in upstream.received[0].json()

    serve_told(scenario)


def test_a_decision_is_deleted_with_its_pictures(serve_told: Serve, person: User, team: Team) -> None:
    async def scenario(running: Runtime) -> None:
        decision = await Decision.objects.acreate(**kept(person, team))
        await DecisionPicture.objects.acreate(decision=decision, media_type="image/png", data=png(1, 1))
        response = await (await htmx_client(person)).post(address("delete_decision", decision))
        assert response["HX-Redirect"] == reverse("playground:decisions")
        assert not await DecisionPicture.objects.aexists()

    serve_told(scenario)
