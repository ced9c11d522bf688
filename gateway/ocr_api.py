"""`POST /v1/ocr`: a document in JSON, by https or as an upload; Markdown page by page; billed by the page."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
from django.conf import settings

from billing.models import Outcome
from gateway import lenient_json, mineru
from gateway.admission import Expected
from gateway.call import Call
from gateway.caller import Caller
from gateway.catalog import Endpoint
from gateway.chat import call_headers
from gateway.data_url import data_url
from gateway.document_limits import UNREADABLE, Unfit, check_picture
from gateway.errors import CallError, InvalidRequest, UpstreamUnavailable
from gateway.http import JSON, Scope, read_body, send_answer
from gateway.multipart import Part, is_multipart, read_multipart
from gateway.ocr_schema import MAX_DOCUMENT_BYTES, OcrRequest, parse_ocr_request
from gateway.pdfs import Pdfs, is_pdf
from gateway.relay import Answer, Job
from gateway.schema import Json, parse_json_object, to_json
from gateway.ssrf import PUBLIC_ONLY, fetch
from gateway.upstreams import Kind, Upstream
from gateway.usage import count

if TYPE_CHECKING:
    from gateway.app import Request
    from gateway.runtime import Runtime

MAX_BODY_BYTES = settings.MAX_DOCUMENT_MIB * 1024 * 1024
GUARD = PUBLIC_ONLY
PDF = "application/pdf"
# A form's words for what JSON has as true and false; any other word is refused as it is in JSON.
FLAGS = {"true": True, "1": True, "false": False, "0": False, "": None}
# By their first bytes: what a server or a browser calls a file is not always what it is.
SIGNATURES = (
    (b"%PDF-", PDF),
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


async def serve(request: Request) -> None:
    caller = await request.caller()
    raw = await read_body(request.headers, request.receive, limit_bytes=MAX_BODY_BYTES)
    # Tens of megabytes of base64 take a while; the other calls of this process go on meanwhile.
    ocr = await asyncio.to_thread(_parse, raw, _content_type(request.scope), request.runtime)
    del raw
    await _look_into(ocr, request.runtime.pdfs)
    answer, ticket = await request.begin(ocr_job(ocr), caller=caller, expected=_expected(ocr))
    body = orjson.dumps(await read(answer, ocr, request.runtime.pdfs))
    headers = [JSON, *call_headers(answer.call, ticket, dropped=ocr.dropped)]
    await send_answer(request.send, status=200, headers=headers, body=body)


async def begin_document(runtime: Runtime, document: Json, *, caller: Caller) -> tuple[Answer, OcrRequest]:
    """The same in process: `read` makes an answer of both. Raises CallError."""
    ocr = await asyncio.to_thread(parse_ocr_request, document, find_model=runtime.upstreams.card)
    await _look_into(ocr, runtime.pdfs)
    answer, _ = await runtime.begin(ocr_job(ocr), caller=caller, expected=_expected(ocr))
    return answer, ocr


def ocr_job(ocr: OcrRequest) -> Job:
    def body(upstream: Upstream) -> bytes:
        if upstream.kind is Kind.MINERU:
            return mineru.form(ocr, backend=upstream.served_as[ocr.model])
        return to_json(ocr.body(model=upstream.served_as[ocr.model]))

    return Job(model=ocr.model, endpoint=Endpoint.OCR, body=body, called=Endpoint.OCR)


def _expected(ocr: OcrRequest) -> Expected:
    return Expected(pages=ocr.expected_pages)


# -- what comes in -------------------------------------------------------------------------------


def _parse(raw: bytes, content_type: str, runtime: Runtime) -> OcrRequest:
    document = _form(raw, content_type) if is_multipart(content_type) else parse_json_object(raw)
    return parse_ocr_request(document, find_model=runtime.upstreams.card)


def _content_type(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"content-type"), "")


def _form(raw: bytes, content_type: str) -> Json:
    """An upload as the document that JSON would hold: the file in `file`, the other fields as text."""
    parts = read_multipart(raw, content_type=content_type)
    document: Json = {name: part.text for name, part in parts.items() if not part.filename and name != "file"}
    file = parts.get("file") or parts.get("document")
    if file is None:
        raise InvalidRequest("file is required", param="file")
    document["document"] = uploaded(file)
    if (word := document.get("include_image_base64")) is not None:
        document["include_image_base64"] = FLAGS.get(word.lower(), word)
    return document


def uploaded(file: Part) -> Json:
    """An uploaded file as the `document` of a request."""
    media_type = media_type_of(file.data, file.media_type)
    kind = "image_url" if media_type.startswith("image/") else "document_url"
    return {"type": kind, kind: data_url(media_type, file.data)}


def media_type_of(data: bytes, claimed: str) -> str:
    found = next((media_type for signature, media_type in SIGNATURES if data.startswith(signature)), "")
    return found or claimed or "application/octet-stream"


async def _look_into(ocr: OcrRequest, pdfs: Pdfs) -> None:
    """Raises InvalidRequest for what no backend should be given. What is neither PDF nor picture is left to it."""
    document = ocr.document
    if document.is_remote:
        return
    try:
        pages = await examine(document.data, media_type=document.media_type, wanted=ocr.fields.get("pages"), pdfs=pdfs)
    except Unfit as error:
        raise InvalidRequest(error.message, code=error.code, param=error.param or document.param) from None
    ocr.document = document.examined(pages=pages)


async def examine(data: bytes, *, media_type: str, wanted: list[int] | None = None, pdfs: Pdfs) -> int:
    """How many pages a document has. Raises Unfit unless those wanted (None: all) can be read."""
    if is_pdf(data):
        return await pdfs.examine(data, pages=wanted)
    if media_type == PDF:
        raise Unfit("The document is called a PDF and is none", code=UNREADABLE)
    check_picture(data)
    return 1


# -- what goes out -------------------------------------------------------------------------------


async def read(answer: Answer, ocr: OcrRequest, pdfs: Pdfs) -> Json:
    """Runs to its end even if the client has left: what the backend works for is metered."""
    if ocr.document.is_remote:
        await _fetch(answer.call, ocr, pdfs)
    async with answer:
        document, bytes_out = _object(await answer.read(), ocr)
        _meter(answer.call, document)
        answer.complete(bytes_out=bytes_out)
    return document


async def _fetch(call: Call, ocr: OcrRequest, pdfs: Pdfs) -> None:
    with _recorded(call):
        found = await fetch(ocr.document.url, param=ocr.document.param, limit_bytes=MAX_DOCUMENT_BYTES, guard=GUARD)
        media_type = media_type_of(found.data, found.media_type)
        ocr.document = await asyncio.to_thread(ocr.document.fetched, media_type=media_type, data=found.data)
        await _look_into(ocr, pdfs)


@contextmanager
def _recorded(call: Call) -> Iterator[None]:
    """A failure before the backend is asked is the call's end, and has its record too."""
    try:
        yield
    except BaseException as error:
        known = isinstance(error, CallError)
        call.status = error.status if isinstance(error, CallError) else 500
        call.error_code = (error.code or str(error.status)) if isinstance(error, CallError) else ""
        call.finish(Outcome.ERROR if known or isinstance(error, Exception) else Outcome.INTERRUPTED)
        raise


def _object(body: bytes, ocr: OcrRequest) -> tuple[Json, int]:
    """The answer under the model's public name, and how many bytes it comes to."""
    try:
        document = lenient_json.loads(body)
        if isinstance(document, dict) and "results" in document:
            document = mineru.ocr_answer(document, ocr)
        document["model"] = ocr.model
        return document, len(lenient_json.dumps(document))
    except (ValueError, TypeError):
        raise UpstreamUnavailable("The model server's answer was not a JSON object of pages.") from None


def _meter(call: Call, document: Json) -> None:
    """Pages as the backend counts them; where it does not, as they stand in its answer, marked as an estimate."""
    usage: Any = document.get("usage_info")
    call.usage = usage
    call.pages = count(usage.get("pages_processed")) if isinstance(usage, dict) else 0
    pages = document.get("pages")
    if not call.pages and isinstance(pages, list) and pages:
        call.pages, call.estimated = len(pages), True
