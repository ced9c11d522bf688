"""A document being read, page by page, whoever watches.

Each page is a call like any other: admitted, metered and charged as it comes, which costs what one call for the
whole would. So "page 2 of 3" is true, and a Stop or a failure keeps what was read and paid for. A page that is
being read when Stop is pressed is read to its end: the model server works on it anyway.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import IntegrityError
from django.utils import timezone

from gateway.caller import Caller
from gateway.data_url import data_url
from gateway.document_limits import Unfit
from gateway.errors import CallError
from gateway.ocr_api import PDF, begin_document, read
from gateway.runtime import runtime
from playground import own_tasks
from playground.call_failure import CallFailed, problem
from playground.history import Document, DocumentFile, Sheet
from playground.keeping import is_wanted, keep
from playground.off_loop import off_loop

logger = logging.getLogger(__name__)

# A limit that others use up as well is waited for, if it says that it will not take long.
PATIENT_ATTEMPTS = 20
MAX_PAUSE_SECONDS = 60
PASSING_STATUSES = (429, 503)


def begin(*, document_id: uuid.UUID, caller: Caller) -> None:
    """Read what is not read yet. Called from within the web process's event loop."""
    own_tasks.begin(_Reading(document_id, caller).run())


@dataclass(slots=True)
class _Wanted:
    """What is to be read, as it was when it began."""

    document: Document
    data: bytes
    indexes: list[int]


class _Reading:
    def __init__(self, document_id: uuid.UUID, caller: Caller) -> None:
        self.document_id = document_id
        self.caller = caller
        self._unwanted = asyncio.Event()

    async def run(self) -> None:
        keeper = asyncio.create_task(keep(Document, self.document_id, unwanted=self._unwanted.set))
        state = Document.State.FAILED
        error: dict[str, Any] | None = problem("internal")
        try:
            await self._read_all()
            stopped = self._unwanted.is_set()
            state, error = (Document.State.STOPPED if stopped else Document.State.DONE), None
        except CallFailed as failure:
            if self._unwanted.is_set():
                state, error = Document.State.STOPPED, None
            else:
                error = failure.kept
        except asyncio.CancelledError:
            # Only a server that goes down cancels.
            error = problem("interrupted")
        except Exception:
            # The edge of the task: whatever happened, the document must not stay "working".
            logger.exception("reading of document %s failed", self.document_id)
        finally:
            keeper.cancel()
            await asyncio.shield(asyncio.ensure_future(self._save(state=state, error=error)))

    async def _read_all(self) -> None:
        wanted = await off_loop(self._load)
        for index in wanted.indexes:
            if self._unwanted.is_set() or not await is_wanted(Document, self.document_id):
                self._unwanted.set()
                return
            sheet = await self._patiently(wanted, index)
            try:
                await off_loop(partial(sheet.save, force_insert=True))
            except IntegrityError:
                # The document was deleted while its page was read.
                self._unwanted.set()

    def _load(self) -> _Wanted:
        document = Document.objects.get(pk=self.document_id)
        there = set(document.sheets.values_list("index", flat=True))
        data = bytes(DocumentFile.objects.get(pk=self.document_id).data)
        return _Wanted(document, data, [index for index in range(document.pages) if index not in there])

    async def _patiently(self, wanted: _Wanted, index: int) -> Sheet:
        for _ in range(PATIENT_ATTEMPTS - 1):
            try:
                return await self._read(wanted, index)
            except CallFailed as failure:
                pause_seconds = pause_after(failure.__cause__)
                if pause_seconds is None or await self._unwanted_within(pause_seconds):
                    raise
        return await self._read(wanted, index)

    async def _unwanted_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._unwanted.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _read(self, wanted: _Wanted, index: int) -> Sheet:
        request_id: uuid.UUID | None = None
        try:
            body = await self._body(wanted, index)
            answer, ocr = await begin_document(runtime(), body, caller=self.caller)
            request_id = answer.request_id
            pages = (await read(answer, ocr, runtime().pdfs)).get("pages")
        except CallError as error:
            raise CallFailed(error, request_id) from error
        return Sheet(document_id=self.document_id, index=index, markdown=_markdown(pages), request_id=request_id)

    async def _body(self, wanted: _Wanted, index: int) -> dict[str, Any]:
        """The page alone where it can be had: a large document is not sent anew for each of its pages."""
        document, data = wanted.document, wanted.data
        body: dict[str, Any] = {"model": document.model}
        if document.pages > 1:
            try:
                data = await runtime().pdfs.extract(data, page=index)
            except Unfit:
                body["pages"] = [index]
        kind, media_type = ("image_url", document.media_type) if document.is_picture else ("document_url", PDF)
        url = await asyncio.to_thread(data_url, media_type, data)
        return body | {"document": {"type": kind, kind: url}}

    async def _save(self, **fields: Any) -> None:
        await off_loop(
            lambda: Document.objects.working().filter(pk=self.document_id).update(touched_at=timezone.now(), **fields)
        )


def pause_after(error: BaseException | None) -> float | None:
    """How long to wait before the call is tried again; None where waiting would not help, or not soon."""
    if not isinstance(error, CallError) or error.status not in PASSING_STATUSES or error.code == "insufficient_quota":
        return None
    said = next((value for name, value in error.headers if name == b"retry-after"), b"1")
    # Some servers give a date here; those that do mean a long time.
    seconds = int(said) if said.isdigit() else MAX_PAUSE_SECONDS + 1
    return seconds if seconds <= MAX_PAUSE_SECONDS else None


def _markdown(pages: Any) -> str:
    found = [page.get("markdown") for page in pages if isinstance(page, dict)] if isinstance(pages, list) else []
    # PostgreSQL's text has no NUL.
    return "\n\n".join(text for text in found if isinstance(text, str)).replace("\x00", "")
