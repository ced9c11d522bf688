"""Documents on the page: read page by page, each page a call, by a task that no tab owns."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncClient
from django.urls import reverse
from django.utils import timezone

from accounts.models import Team, User
from billing.models import Source, UsageRecord
from gateway.caller import Caller
from gateway.data_url import read_data_url
from gateway.errors import RateLimited, UpstreamTimeout, UpstreamUnavailable
from gateway.pdf_reader import examine
from gateway.runtime import Runtime
from playground import own_tasks, reading
from playground.history import Document, DocumentFile, Sheet
from playground.reading import pause_after
from tests.documents import encrypted_pdf, pdf, png
from tests.fake_upstream import replies
from tests.fake_upstream.server import FakeUpstream, Gate, Received, Wire
from tests.playground.conftest import Serve
from tests.playground.htmx_client import htmx_client

THREE = pdf("Report\nIncome rose.", "Details\nTwo more.", "End\nNothing follows.")
READ = reverse("playground:read_document")


def page(text: str, *, pages: int = 1) -> dict[str, Any]:
    return {"pages": [{"index": 0, "markdown": text}], "usage_info": {"pages_processed": pages}}


def paused(gate: Gate, answer: dict[str, Any]) -> Any:
    async def reply(request: Received, wire: Wire) -> None:
        await gate.wait()
        await replies.answer(answer)(request, wire)

    return reply


async def upload(client: AsyncClient, data: bytes = THREE, name: str = "report.pdf", **fields: str) -> Any:
    file = SimpleUploadedFile(name, data, content_type="application/pdf")
    return await client.post(READ, {"file": file, **fields})


async def finished() -> None:
    await asyncio.gather(*own_tasks._tasks)


async def uploaded(client: AsyncClient, **fields: Any) -> Document:
    response = await upload(client, **fields)
    assert response.status_code == 200, response.content
    document: Document = await Document.objects.aget()
    assert response["HX-Redirect"] == reverse("playground:document", args=[document.pk])
    return document


async def texts(document: Document) -> list[str]:
    return [sheet.markdown async for sheet in document.sheets.all()]


def address(name: str, document: Document, *arguments: object) -> str:
    return reverse(f"playground:{name}", args=[document.pk, *arguments])


# -- reading -------------------------------------------------------------------------------------


def test_each_page_is_a_call_of_its_own_and_stands_on_the_page(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        document = await uploaded(client)
        await finished()
        await document.arefresh_from_db()
        assert (document.state, document.pages, document.media_type) == ("done", 3, "application/pdf")
        read = ["# Report\n\nIncome rose.", "# Details\n\nTwo more.", "# End\n\nNothing follows."]
        assert await texts(document) == read
        ids = {sheet.request_id async for sheet in document.sheets.all()}
        running.shipper.stop()
        records = [record async for record in UsageRecord.objects.filter(pk__in=ids)]
        assert [(record.pages, record.source, record.endpoint) for record in records] == [
            (1, Source.PLAYGROUND, "ocr")
        ] * 3
        shown = (await client.get(address("document", document), headers={"HX-Request": ""})).content.decode()
        assert "<h3>Report</h3>" in shown
        assert "3 pages read" in shown
        saved = await client.get(address("document_markdown", document))
        assert saved.content.decode() == "\n\n".join(read) + "\n"
        assert saved["Content-Disposition"] == 'attachment; filename="report.md"'
        picture = await client.get(address("document_picture", document, 2))
        assert (picture["Content-Type"], picture.content[:4]) == ("image/png", b"\x89PNG")
        assert (await client.get(address("document_picture", document, 3))).status_code == 404

    serve(scenario)


def test_a_picture_is_one_page_and_is_shown_as_it_is(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        document = await uploaded(client, data=png(40, 30), name="scan.png")
        await finished()
        assert "40 × 30 pixels" in (await texts(document))[0]
        picture = await client.get(address("document_picture", document, 0))
        assert (picture["Content-Type"], picture.content) == ("image/png", png(40, 30))

    serve(scenario)


def test_the_sample_is_read(serve: Serve, person: User) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        await client.post(READ, {"sample": "1"})
        await finished()
        document = await Document.objects.aget()
        assert (document.name, document.state) == ("tides.pdf", "done")
        assert (await texts(document))[0].startswith("# Tides: a short guide")

    serve(scenario)


def test_progress_is_told_as_it_is(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    gate = upstream.gate()
    upstream.then(replies.answer(page("One")), paused(gate, page("Two")), replies.answer(page("Three")))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        document = await uploaded(client)
        await asyncio.to_thread(gate.reached.wait, 30)
        url = address("document_progress", document)
        news = await client.get(url, {"shown": "0"})
        assert "Reading page 2 of 3" in news.content.decode()
        assert news.content.decode().count('<article class="sheet"') == 1
        seen = f"{document.state} 1 False"
        assert (await client.get(url, {"seen": seen, "shown": "1"})).status_code == 204
        gate.open()
        await finished()
        last = (await client.get(url, {"seen": seen, "shown": "1"})).content.decode()
        assert last.count('<article class="sheet"') == 2
        assert "3 pages read" in last
        assert "every 1s" not in last

    serve_told(scenario)


def test_each_call_holds_its_page_alone(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    upstream.then(*[replies.answer(page(text)) for text in ("One", "Two", "Three")])

    async def scenario(running: Runtime) -> None:
        await uploaded(await htmx_client(person))
        await finished()
        for request in upstream.received:
            body = request.json()
            assert set(body) == {"model", "document"}
            assert examine(read_data_url(body["document"]["document_url"], param="", limit_bytes=10**6).data, None) == 1

    serve_told(scenario)


def test_stop_keeps_what_was_read_and_asks_for_no_further_page(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()
    upstream.then(replies.answer(page("One")), paused(gate, page("Two")))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        document = await uploaded(client)
        await asyncio.to_thread(gate.reached.wait, 30)
        answer = await client.post(address("stop_document", document))
        assert "Stopping after page 2 of 3" in answer.content.decode()
        gate.open()
        await finished()
        await document.arefresh_from_db()
        assert (document.state, await texts(document)) == ("stopped", ["One", "Two"])
        assert len(upstream.received) == 2
        # The rest can be had later; what is there is not asked for, and paid for, again.
        upstream.then(replies.answer(page("Three")))
        await client.post(address("go_on_reading", document))
        await finished()
        await document.arefresh_from_db()
        assert (document.state, await texts(document)) == ("done", ["One", "Two", "Three"])

    serve_told(scenario)


def test_a_failed_page_is_explained_with_its_request_and_can_be_tried_again(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    upstream.then(replies.answer(page("One")), replies.answer({"error": {"message": "out of memory"}}, status=500))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        document = await uploaded(client)
        await finished()
        await document.arefresh_from_db()
        assert (document.state, await texts(document)) == ("failed", ["One"])
        shown = (await client.get(address("document", document), headers={"HX-Request": ""})).content.decode()
        assert "out of memory" in shown
        assert (document.error or {})["request_id"] in shown
        assert "1 of 3 pages read" in shown
        upstream.then(replies.answer(page("Two")), replies.answer(page("Three")))
        answer = await client.post(address("go_on_reading", document))
        assert answer["HX-Redirect"] == address("document", document)
        await finished()
        assert await texts(document) == ["One", "Two", "Three"]
        # Done: there is nothing to go on with.
        await client.post(address("go_on_reading", document))
        assert len(upstream.received) == 4

    serve_told(scenario)


def test_a_limit_that_passes_is_waited_for(serve_told: Serve, person: User, upstream: FakeUpstream) -> None:
    busy = replies.answer({"error": {"message": "busy"}}, status=429, retry_after="0")
    upstream.then(busy, replies.answer(page("One")))

    async def scenario(running: Runtime) -> None:
        document = await uploaded(await htmx_client(person), data=pdf("One"))
        await finished()
        assert await texts(document) == ["One"]

    serve_told(scenario)


def test_spent_points_and_long_waits_are_not_waited_for() -> None:
    assert pause_after(RateLimited("", code="rate_limit_exceeded", retry_after_seconds=7)) == 7
    assert pause_after(RateLimited("", code="rate_limit_exceeded", retry_after_seconds=61)) is None
    assert pause_after(RateLimited("", code="insufficient_quota", retry_after_seconds=1)) is None
    assert pause_after(UpstreamTimeout("")) is None
    assert pause_after(UpstreamUnavailable("", status=503)) == 1
    assert pause_after(UpstreamUnavailable("", status=503, headers=((b"retry-after", b"Mon, 30 Nov"),))) is None


def test_a_document_deleted_while_it_is_read_ends_its_reading(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()
    upstream.then(paused(gate, page("One")))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        document = await uploaded(client)
        await asyncio.to_thread(gate.reached.wait, 30)
        answer = await client.post(address("delete_document", document))
        assert answer["HX-Redirect"] == reverse("playground:documents")
        gate.open()
        await finished()
        assert len(upstream.received) == 1
        assert not await Document.objects.aexists()
        assert not await Sheet.objects.aexists()

    serve_told(scenario)


def test_a_server_that_goes_down_says_so_and_the_rest_is_read_later(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    gate = upstream.gate()
    upstream.then(replies.answer(page("One")), paused(gate, page("Two")))

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        document = await uploaded(client)
        await asyncio.to_thread(gate.reached.wait, 30)
        await own_tasks.shut_down()
        await document.arefresh_from_db()
        assert (document.state, (document.error or {})["code"]) == ("failed", "interrupted")
        gate.open()
        upstream.then(replies.answer(page("Two")), replies.answer(page("Three")))
        await client.post(address("go_on_reading", document))
        await finished()
        assert await texts(document) == ["One", "Two", "Three"]

    serve_told(scenario)


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "Choose a PDF or a picture first."),
        (b"Dear all", "neither a PDF nor"),
        (THREE[:150], "damaged"),
        (encrypted_pdf(), "This PDF is encrypted."),
        (png(1, 1)[:20], "damaged"),
        (THREE.replace(b"612 792", b"90000 90000"), "too large"),
    ],
    ids=["nothing", "text", "cut", "encrypted", "half a picture", "huge"],
)
def test_what_cannot_be_read_is_said_before_anything_is_kept(
    serve_told: Serve, person: User, upstream: FakeUpstream, data: bytes, said: str
) -> None:
    async def scenario(running: Runtime) -> None:
        response = await upload(await htmx_client(person), data)
        assert response.status_code == 422
        assert said in response.content.decode()
        assert not await Document.objects.aexists()
        assert upstream.received == []

    serve_told(scenario)


def test_one_person_has_three_documents_read_at_a_time(
    serve_told: Serve, person: User, team: Team, upstream: FakeUpstream
) -> None:
    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        for _ in range(3):
            await Document.objects.acreate(**kept(person, team, state="working"))
        response = await upload(client)
        assert (response.status_code, "3 documents" in response.content.decode()) == (422, True)
        # One whose process was killed does not count.
        await Document.objects.aupdate(touched_at=timezone.now() - timedelta(minutes=1))
        upstream.then(replies.answer(page("One")))
        assert (await upload(client, pdf("One"))).status_code == 200
        await finished()

    serve_told(scenario)


def test_where_no_model_reads_documents_the_page_says_so(
    serve_told: Serve, person: User, upstream: FakeUpstream
) -> None:
    upstream.models = []

    async def scenario(running: Runtime) -> None:
        client = await htmx_client(person)
        shown = (await client.get(reverse("playground:documents"), headers={"HX-Request": ""})).content.decode()
        assert "No model that could do this is served here" in shown
        assert 'type="file"' not in shown
        assert (await upload(client)).status_code == 422

    serve_told(scenario)


# -- whose it is ---------------------------------------------------------------------------------


def kept(person: User, team: Team, **fields: Any) -> dict[str, Any]:
    given = {"name": "report.pdf", "media_type": "application/pdf", "size_bytes": 3, "pages": 1, "state": "done"}
    return {"owner": person, "team": team, "model": "MinerU2.5-Pro"} | given | fields


NAMES = [
    "document", "document_progress", "document_sheets", "document_markdown", "document_points", "document_picture",
    "stop_document", "go_on_reading", "delete_document",
]  # fmt: skip


def test_somebody_elses_document_does_not_exist(serve_told: Serve, person: User, team: Team, stranger: User) -> None:
    async def scenario(running: Runtime) -> None:
        document = await Document.objects.acreate(**kept(person, team))
        await DocumentFile.objects.acreate(document=document, data=THREE)
        client = await htmx_client(stranger)
        for name in NAMES:
            url = address(name, document, *([0] if name == "document_picture" else []))
            posted = name in ("stop_document", "go_on_reading", "delete_document")
            response = await (client.post(url) if posted else client.get(url))
            assert response.status_code == 404, name
        assert "report.pdf" not in (await client.get(reverse("playground:documents_list"))).content.decode()
        assert await Document.objects.aexists()

    serve_told(scenario)


def test_a_long_history_and_a_long_document_come_in_pages(serve_told: Serve, person: User, team: Team) -> None:
    async def scenario(running: Runtime) -> None:
        moment = timezone.now()
        documents = [
            Document(**kept(person, team, name=f"nr {at}.pdf", created_at=moment - timedelta(seconds=at)))
            for at in range(45)
        ]
        await Document.objects.abulk_create(documents)
        client = await htmx_client(person)
        first = (await client.get(reverse("playground:documents"), headers={"HX-Request": ""})).content.decode()
        assert first.count('class="past"') == 30
        after = f"{documents[29].created_at.isoformat()},{documents[29].pk}"
        second = (await client.get(reverse("playground:documents_list"), {"after": after})).content.decode()
        assert ("nr 30.pdf" in second, second.count('class="past"')) == (True, 15)

        long = documents[0]
        await Sheet.objects.abulk_create(
            Sheet(document=long, index=index, markdown=f"Sheet {index}", request_id=long.pk) for index in range(45)
        )
        shown = (await client.get(address("document", long), headers={"HX-Request": ""})).content.decode()
        assert (shown.count('<article class="sheet"'), "sheets/?from=20" in shown) == (20, True)
        rest = (await client.get(address("document_sheets", long), {"from": "40"})).content.decode()
        assert (rest.count('<article class="sheet"'), "from=" in rest) == (5, False)

    serve_told(scenario)


def test_a_document_that_nobody_reads_any_more_says_so(
    serve_told: Serve, person: User, team: Team, caller: Caller
) -> None:
    async def scenario(running: Runtime) -> None:
        old = timezone.now() - timedelta(minutes=1)
        document = await Document.objects.acreate(**kept(person, team, state="working", touched_at=old))
        shown = await (await htmx_client(person)).get(address("document", document), headers={"HX-Request": ""})
        assert "The server stopped before the answer was complete." in shown.content.decode()
        # Its file is gone in this test: whatever happens, reading it ends.
        await Document.objects.aupdate(state="working")
        reading.begin(document_id=document.pk, caller=caller)
        await finished()
        await document.arefresh_from_db()
        assert (document.state, (document.error or {})["code"]) == ("failed", "internal")

    serve_told(scenario)
