"""Speech on the page: spoken once by a task that no tab owns, heard as often and by as many as one likes."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any, cast

import pytest
from django.http import StreamingHttpResponse
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone

from accounts.models import Team, User
from billing.models import Source, UsageRecord
from gateway.runtime import Runtime
from playground import own_tasks
from playground.history import SoundPiece, Speech
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream
from tests.playground.conftest import Serve
from tests.playground.htmx_client import htmx_client

SPEAK = reverse("playground:speak")
TEXT = "Grüße 👋\r\nZweite Zeile"


def address(name: str, speech: Speech) -> str:
    return reverse(f"playground:{name}", args=[speech.pk])


async def speak(client: AsyncClient, **fields: Any) -> Any:
    return await client.post(SPEAK, {"text": TEXT, "model": "OmniVoice"} | fields)


async def finished() -> None:
    await asyncio.gather(*own_tasks._tasks)


async def heard(response: Any) -> bytes:
    body = b"".join([piece async for piece in cast(StreamingHttpResponse, response)])
    response.close()
    return body


async def sound(client: AsyncClient, speech: Speech, **headers: str) -> tuple[Any, bytes]:
    response = await client.get(address("speech_sound", speech), headers=headers)
    return response, await heard(response)


def kept(person: User, team: Team, **fields: Any) -> dict[str, Any]:
    given = {"text": "Hello", "content_type": "audio/wav", "request_id": uuid.uuid4(), "state": "done"}
    return {"owner": person, "team": team, "model": "OmniVoice"} | given | fields


# -- speaking ------------------------------------------------------------------------------------


def test_a_text_is_spoken_kept_and_counted_as_the_page_shows_it(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(b"sound" * 100, content_type="audio/mpeg"))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        response = await speak(client, response_format="mp3", speed="1.5", voice="low", instructions="calm")
        speech = await Speech.objects.aget()
        assert response["HX-Push-Url"] == address("spoken", speech)
        shown = response.content.decode()
        assert f'src="{address("speech_sound", speech)}"' in shown
        assert 'id="history" hx-swap-oob="true"' in shown
        await finished()
        # A line's end is one character, as one sees it.
        assert upstream.received[0].json() == {
            "model": "OmniVoice",
            "input": "Grüße 👋\nZweite Zeile",
            "voice": "low",
            "response_format": "mp3",
            "speed": 1.5,
            "instructions": "calm",
        }
        await speech.arefresh_from_db()
        assert (speech.state, speech.text, speech.content_type) == ("done", "Grüße 👋\nZweite Zeile", "audio/mpeg")
        answer, body = await sound(client, speech)
        assert (answer["Content-Type"], body) == ("audio/mpeg", b"sound" * 100)
        running.shipper.stop()
        record = await UsageRecord.objects.aget(pk=speech.request_id)
        assert (record.characters, record.source, record.endpoint) == (20, Source.PLAYGROUND, "speech")

    serve_told(scenario)


def test_what_is_not_said_is_not_sent(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(b"sound", content_type="audio/wav"))

    async def scenario(running: Runtime) -> None:
        await speak(await htmx_client(person), text="Hi", voice="", speed="1", instructions="")
        await finished()
        assert upstream.received[0].json() == {"model": "OmniVoice", "input": "Hi"}

    serve_told(scenario)


def test_sound_is_heard_while_it_is_made_and_made_once(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, [b"a" * 300_000], [b"b" * 300_000]))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        await speak(client)
        speech = await Speech.objects.aget()
        state = address("speech_state", speech)
        assert (await client.get(state)).status_code == 204
        response = await client.get(address("speech_sound", speech), headers={"Range": "bytes=0-1"})
        # Of what is not complete nobody knows the length.
        assert (response.status_code, response.has_header("Content-Length")) == (200, False)
        pieces = aiter(cast(StreamingHttpResponse, response))
        first = await anext(pieces)
        assert set(first) == set(b"a")
        gate.open()
        rest = b"".join([piece async for piece in pieces])
        response.close()
        assert first + rest == b"a" * 300_000 + b"b" * 300_000
        await finished()
        assert "Save as WAV" in (await client.get(state)).content.decode()
        assert (await sound(client, speech))[1] == first + rest
        assert len(upstream.received) == 1

    serve_told(scenario)


def test_a_player_jumps_by_ranges(serve_told: Serve, person: User, team: Team) -> None:
    async def scenario(running: Runtime) -> None:
        speech = await Speech.objects.acreate(**kept(person, team))
        for at, data in ((0, b"0123"), (4, b"4567"), (8, b"89")):
            await SoundPiece.objects.acreate(speech=speech, first_byte=at, end_byte=at + len(data), data=data)
        client = await htmx_client(person)
        whole, body = await sound(client, speech)
        assert (whole.status_code, whole["Content-Length"], whole["Accept-Ranges"], body) == (
            200,
            "10",
            "bytes",
            b"0123456789",
        )
        for wanted, expected, said in [
            ("bytes=0-1", b"01", "bytes 0-1/10"),
            ("bytes=3-8", b"345678", "bytes 3-8/10"),
            ("bytes=7-", b"789", "bytes 7-9/10"),
            ("bytes=-3", b"789", "bytes 7-9/10"),
            ("bytes=5-999", b"56789", "bytes 5-9/10"),
        ]:
            part, body = await sound(client, speech, Range=wanted)
            assert (part.status_code, part["Content-Range"], part["Content-Length"], body) == (
                206,
                said,
                str(len(expected)),
                expected,
            )
        beyond = await client.get(address("speech_sound", speech), headers={"Range": "bytes=10-"})
        assert (beyond.status_code, beyond["Content-Range"]) == (416, "bytes */10")
        saved = await client.get(address("speech_sound", speech), {"download": ""})
        assert saved["Content-Disposition"] == f'attachment; filename="{speech.pk.hex[:8]}.wav"'
        saved.close()

    serve_told(scenario)


def test_a_model_servers_word_for_its_sound_is_not_a_page(serve_told: Serve, person: User, team: Team) -> None:
    async def scenario(running: Runtime) -> None:
        speech = await Speech.objects.acreate(**kept(person, team, content_type="text/html"))
        response, _ = await sound(await htmx_client(person), speech)
        assert response["Content-Type"] == "application/octet-stream"

    serve_told(scenario)


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_refusal_is_explained_and_nothing_is_kept(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer({"error": {"message": "no such voice"}}, status=400))

    async def scenario(running: Runtime) -> None:
        response = await speak(await htmx_client(person), voice="nobody")
        shown = response.content.decode()
        assert response.status_code == 422
        assert "no such voice" in shown
        running.shipper.stop()
        assert str((await UsageRecord.objects.aget()).pk) in shown
        assert not await Speech.objects.aexists()

    serve_told(scenario)


def test_sound_that_breaks_off_is_kept_and_said_to_be_broken(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    upstream.then(replies.cut_stream(b"half"))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        await speak(client)
        await finished()
        speech = await Speech.objects.aget()
        assert (speech.state, (await sound(client, speech))[1]) == ("failed", b"half")
        assert "broke the answer off" in (await client.get(address("speech_state", speech))).content.decode()

    serve_told(scenario)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": " \r\n"}, "Write a text first."),
        ({"text": "👍" * 4_097}, "The text has 4,097 characters; 4,096 are the most."),
        ({"speed": "5"}, "Speed is a number from 0.25 to 4."),
        ({"model": "d3"}, "This model cannot be used at the moment."),
    ],
)
def test_what_the_form_has_wrong_is_said_before_anything_is_asked(
    serve_told: Serve, person: User, upstream: FakeUpstream, fields: dict[str, str], said: str
) -> None:
    async def scenario(running: Runtime) -> None:
        response = await speak(await htmx_client(person), **fields)
        assert (response.status_code, said in response.content.decode()) == (422, True)
        assert upstream.received == []

    serve_told(scenario)


def test_4096_characters_of_any_kind_are_spoken(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.then(replies.answer(b"sound", content_type="audio/wav"))

    async def scenario(running: Runtime) -> None:
        # Line ends, two characters each as browsers send them, count once.
        assert (await speak(await htmx_client(person), text="👍\r\n" * 2_048)).status_code == 200
        await finished()

    serve_told(scenario)


def test_a_speech_deleted_while_it_is_made_ends_the_call(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, [b"a" * 300_000], []))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        await speak(client)
        speech = await Speech.objects.aget()
        answer = await client.post(address("delete_speech", speech))
        assert answer["HX-Redirect"] == reverse("playground:speech")
        # Its task looks once a second, sees that nobody will listen, and ends the call upstream.
        await finished()
        gate.open()
        assert not await SoundPiece.objects.aexists()
        running.shipper.stop()
        assert [record.outcome async for record in UsageRecord.objects.all()] == ["stopped"]

    serve_told(scenario)


def test_a_server_that_goes_down_says_so(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.paused_stream(gate, [b"a" * 300_000], []))

    async def scenario(running: Runtime) -> None:
        await speak(await htmx_client(person))
        await own_tasks.shut_down()
        gate.open()
        speech = await Speech.objects.aget()
        assert (speech.state, (speech.error or {})["code"]) == ("failed", "interrupted")

    serve_told(scenario)


# -- whose it is ---------------------------------------------------------------------------------

NAMES = ["spoken", "speech_state", "speech_sound", "speech_points", "delete_speech"]


def test_somebody_elses_speech_does_not_exist(serve_told: Serve, person: User, team: Team, stranger: User) -> None:
    async def scenario(running: Runtime) -> None:
        speech = await Speech.objects.acreate(**kept(person, team, text="My secret"))
        client = await htmx_client(stranger)
        for name in NAMES:
            url = address(name, speech)
            response = await (client.post(url) if name == "delete_speech" else client.get(url))
            assert response.status_code == 404, name
        assert "My secret" not in (await client.get(reverse("playground:speech_list"))).content.decode()
        assert await Speech.objects.aexists()

    serve_told(scenario)


def test_the_form_of_an_earlier_speech_is_as_it_was(serve_told: Serve, person: User, team: Team) -> None:
    async def scenario(running: Runtime) -> None:
        settings = {"voice": "low", "response_format": "flac", "speed": 0.5}
        old = timezone.now() - timedelta(days=1)
        given = kept(person, team, text="<b>Hello</b>", settings=settings, created_at=old)
        speech = await Speech.objects.acreate(**given)
        client = await htmx_client(person)
        shown = (await client.get(address("spoken", speech), headers={"HX-Request": ""})).content.decode()
        assert "&lt;b&gt;Hello&lt;/b&gt;</textarea>" in shown
        for part in ('value="low"', '<option value="flac" selected>', 'value="0.5"', "1 day ago"):
            assert part in shown.replace("\xa0", " "), part

    serve_told(scenario)
