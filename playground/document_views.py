"""Documents: a PDF or a picture is dropped, and its pages stand beside what was read of them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings as site
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_POST

from accounts.access import right_required, team_required
from accounts.rights import Right
from gateway.catalog import Endpoint
from gateway.document_limits import Unfit
from gateway.ocr_api import examine, media_type_of
from gateway.ocr_schema import MAX_DOCUMENT_BYTES
from gateway.pdfs import is_pdf
from gateway.runtime import runtime
from playground import documents as verbs
from playground import reading
from playground.call_failure import problem_of
from playground.endpoint_examples import document_examples
from playground.history import Document, DocumentFile, Sheet
from playground.history_list import history_of, own
from playground.offers import chosen_of, offers_of
from playground.problems import Problem
from playground.request import PersonRequest, caller_of
from playground.sheet_text import sheet_html
from playground.spending import spending_of

LIMIT_MIB = MAX_DOCUMENT_BYTES // (1024 * 1024)
SHEETS_A_PAGE = 20
PICTURE_WIDTH = 1_100
SAMPLE = Path(__file__).with_name("samples") / "tides.pdf"
KINDS = ("application/pdf", "image/png", "image/jpeg", "image/gif", "image/webp")


# -- pages -------------------------------------------------------------------------------------


@team_required
@require_GET
def documents(request: PersonRequest) -> HttpResponse:
    offers = offers_of(request, Endpoint.OCR)
    context = {
        "offers": offers,
        "chosen": chosen_of(offers, request.GET.get("model", "")),
        "kinds": ",".join(KINDS),
        "limit_mib": LIMIT_MIB,
        "limit_bytes": MAX_DOCUMENT_BYTES,
        "too_large": _too_large(),
    }
    return render(request, "playground/documents.html", context | history_of(request, Document))


@team_required
@require_GET
def documents_list(request: PersonRequest) -> HttpResponse:
    """The next page of the list."""
    if not request.htmx:
        return redirect("playground:documents")
    return render(request, "playground/documents.html#rows", history_of(request, Document))


@team_required
@require_POST
def documents_code(request: PersonRequest) -> HttpResponse:
    document = Document.objects.of(request.user, request.team).filter(pk=_uuid(request.POST.get("document"))).first()
    name = document.name if document else "report.pdf"
    model = document.model if document else request.POST.get("model", "")
    return render(
        request, "playground/code.html", {"examples": document_examples(model=model, name=name, site_url=site.SITE_URL)}
    )


@team_required
@require_GET
def document(request: PersonRequest, document_id: uuid.UUID) -> HttpResponse:
    found = _as_it_is(own(request, Document, document_id))
    context = _progress(found) | _sheets(found, first=0) | history_of(request, Document, current=found)
    return render(request, "playground/document.html", context)


# -- reading -----------------------------------------------------------------------------------


@right_required(Right.USE_MODELS)
@require_POST
async def read_document(request: PersonRequest) -> HttpResponseBase:
    offers = await sync_to_async(offers_of)(request, Endpoint.OCR)
    chosen = chosen_of(offers, request.POST.get("model", ""))
    if chosen is None:
        return await _refused(request, Problem(gettext("No model that reads documents can be reached."), ""))
    try:
        upload = await _upload(request)
        add = sync_to_async(verbs.add)
        added = await add(owner=request.user, team=request.team, model=chosen.model.id, upload=upload)
    except Unfit as error:
        kept = {"status": 400, "code": error.code, "message": error.message}
        return await _refused(request, problem_of(kept))
    except NoFile as error:
        return await _refused(request, Problem(str(error), ""))
    except verbs.Busy:
        return await _refused(request, _busy())
    reading.begin(document_id=added.pk, caller=caller_of(request))
    return _go_to(request, added)


@right_required(Right.USE_MODELS)
@require_POST
async def go_on(request: PersonRequest, document_id: uuid.UUID) -> HttpResponseBase:
    found = await sync_to_async(_with_owner)(request, document_id)
    try:
        opened = await sync_to_async(verbs.go_on)(found)
    except verbs.Busy:
        return await _refused(request, _busy())
    if opened:
        reading.begin(document_id=found.pk, caller=caller_of(request))
    return _go_to(request, found)


@team_required
@require_POST
def stop_document(request: PersonRequest, document_id: uuid.UUID) -> HttpResponse:
    found = own(request, Document, document_id)
    verbs.stop(found)
    if not request.htmx:
        return redirect("playground:document", document_id)
    found.refresh_from_db()
    return render(request, "playground/document.html#progress", _progress(found))


@team_required
@require_GET
def document_progress(request: PersonRequest, document_id: uuid.UUID) -> HttpResponse:
    """What has changed since the page asked last; 204 where nothing has."""
    found = _as_it_is(own(request, Document, document_id))
    if not request.htmx:
        return redirect("playground:document", document_id)
    context = _progress(found)
    if context["seen"] == request.GET.get("seen"):
        return HttpResponse(status=204)
    shown = request.GET.get("shown", "")
    if shown.isdecimal():
        context |= _sheets(found, first=int(shown))
    return render(request, "playground/document.html#news", context | {"news": True})


# -- one document ------------------------------------------------------------------------------


@team_required
@require_GET
def document_sheets(request: PersonRequest, document_id: uuid.UUID) -> HttpResponse:
    """The next sheets of a long document."""
    found = own(request, Document, document_id)
    if not request.htmx:
        return redirect("playground:document", document_id)
    first = request.GET.get("from", "")
    context = _sheets(found, first=int(first) if first.isdecimal() else 0, by_hand=True)
    return render(request, "playground/document.html#sheets", context)


@team_required
@require_GET
async def document_picture(request: PersonRequest, document_id: uuid.UUID, index: int) -> HttpResponse:
    """A page as it looks: drawn from a PDF, a picture as it is."""
    found, data = await sync_to_async(_with_file)(request, document_id)
    if index >= found.pages:
        raise Http404
    if is_pdf(data):
        try:
            picture, media_type = await runtime().pdfs.draw(data, page=index, width=PICTURE_WIDTH), "image/png"
        except Unfit:
            raise Http404 from None
    else:
        picture, media_type = data, found.media_type
    response = HttpResponse(picture, content_type=media_type)
    # A document never changes.
    response["Cache-Control"] = "private, max-age=86400, immutable"
    return response


@team_required
@require_GET
def document_markdown(request: PersonRequest, document_id: uuid.UUID) -> HttpResponse:
    found = own(request, Document, document_id)
    text = "\n\n".join(found.sheets.values_list("markdown", flat=True)) + "\n"
    response = HttpResponse(text, content_type="text/markdown; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, f"{Path(found.name).stem}.md") or "attachment"
    return response


@team_required
@require_GET
def document_points(request: PersonRequest, document_id: uuid.UUID) -> HttpResponse:
    found = own(request, Document, document_id)
    if not request.htmx:
        return redirect("playground:document", document_id)
    attempt = request.GET.get("attempt", "")
    spending = _spending(found, attempt=int(attempt) if attempt.isdecimal() else 0)
    return render(request, "playground/document.html#points", {"document": found, "spending": spending})


@team_required
@require_POST
def delete_document(request: PersonRequest, document_id: uuid.UUID) -> HttpResponse:
    own(request, Document, document_id).delete()
    if not request.htmx:
        return redirect("playground:documents")
    return HttpResponse(headers={"HX-Redirect": reverse("playground:documents")})


# -- what the templates need --------------------------------------------------------------------


def _as_it_is(document: Document) -> Document:
    """One that nobody reads any more says so."""
    if document.is_working and Document.objects.filter(pk=document.pk).close_cut_off():
        document.refresh_from_db()
    return document


def _progress(document: Document) -> dict[str, Any]:
    done = document.sheets.count()
    return {
        "document": document,
        "done": done,
        "reading": min(done + 1, document.pages),
        "problem": problem_of(document.error) if document.error else None,
        "spending": _spending(document) if not document.is_working else None,
        "seen": f"{document.state} {done} {document.stop_requested}",
    }


def _sheets(document: Document, *, first: int, by_hand: bool = False) -> dict[str, Any]:
    """Sheets from the one at `first` on.

    `shown` is how many there are then, None where some are left out; `more_from` where those begin. Whoever asks
    `by_hand` goes on so: what is still being read is no longer put onto the page by itself.
    """
    page = list(document.sheets.all()[first : first + SHEETS_A_PAGE + 1])
    shown = page[:SHEETS_A_PAGE]
    end = first + len(shown)
    return {
        "document": document,
        "sheets": [{"sheet": sheet, "number": sheet.index + 1, "html": sheet_html(sheet.markdown)} for sheet in shown],
        "shown": end if len(page) <= SHEETS_A_PAGE else None,
        "more_from": end if len(page) > SHEETS_A_PAGE or (by_hand and document.is_working) else None,
    }


def _spending(document: Document, *, attempt: int = 0) -> Any:
    ids = list(Sheet.objects.filter(document=document).values_list("request_id", flat=True))
    return spending_of(ids, attempt=attempt)


class NoFile(Exception):
    """Nothing was sent that could be read; the text says what to do."""


async def _upload(request: PersonRequest) -> verbs.Upload:
    """Raises NoFile, Unfit."""
    if request.POST.get("sample"):
        name, data, claimed = SAMPLE.name, await sync_to_async(SAMPLE.read_bytes)(), "application/pdf"
    else:
        file = request.FILES.get("file")
        if file is None or not file.size:
            raise NoFile(gettext("Choose a PDF or a picture first."))
        if file.size > MAX_DOCUMENT_BYTES:
            raise NoFile(_too_large())
        name, data, claimed = str(file.name), await sync_to_async(_bytes_of)(file), str(file.content_type)
    media_type = "application/pdf" if is_pdf(data) else media_type_of(data, claimed)
    if media_type not in KINDS or (media_type == "application/pdf" and not is_pdf(data)):
        raise NoFile(gettext("This is neither a PDF nor a PNG, JPEG, GIF or WebP picture."))
    pages = await examine(data, media_type=media_type, pdfs=runtime().pdfs)
    return verbs.Upload(name, media_type, data, pages)


def _too_large() -> str:
    return gettext("A document may have at most %d MiB.") % LIMIT_MIB


def _bytes_of(file: UploadedFile[bytes]) -> bytes:
    data: bytes = file.read()
    return data


def _busy() -> Problem:
    text = gettext("You have %d documents being read at the moment.") % verbs.MAX_AT_ONCE
    return Problem(text, gettext("Wait until one of them is done."))


async def _refused(request: PersonRequest, problem: Problem) -> HttpResponse:
    """The file stays in the form."""
    return await sync_to_async(render)(request, "playground/problem.html", {"problem": problem}, status=422)


def _go_to(request: PersonRequest, document: Document) -> HttpResponse:
    url = reverse("playground:document", args=[document.pk])
    return HttpResponse(headers={"HX-Redirect": url}) if request.htmx else HttpResponseRedirect(url)


def _with_file(request: PersonRequest, document_id: uuid.UUID) -> tuple[Document, bytes]:
    found = own(request, Document, document_id)
    return found, bytes(DocumentFile.objects.get(pk=found.pk).data)


def _with_owner(request: PersonRequest, document_id: uuid.UUID) -> Document:
    return own(request, Document, document_id)


def _uuid(text: str | None) -> uuid.UUID | None:
    try:
        return uuid.UUID(text or "")
    except ValueError:
        return None
