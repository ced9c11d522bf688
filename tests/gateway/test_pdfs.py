"""PDFs in processes of their own: what is counted and drawn, what is refused, and what a bad file cannot do."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway import pdfs as pdfs_module
from gateway.document_limits import Unfit
from gateway.errors import UpstreamUnavailable
from gateway.pdfs import Pdfs, is_pdf
from tests.documents import encrypted_pdf, pdf, png, with_stream

THREE = pdf("One", "Two", "Three")


def run[T](scene: Callable[[Pdfs], Awaitable[T]]) -> T:
    async def main() -> T:
        pdfs = Pdfs()
        try:
            return await scene(pdfs)
        finally:
            await pdfs.aclose()

    return asyncio.run(main())


async def refusal(pdfs: Pdfs, data: bytes, pages: list[int] | None = None) -> tuple[str | None, str | None, str]:
    with pytest.raises(Unfit) as caught:
        await pdfs.examine(data, pages=pages)
    error = caught.value
    return error.code, error.param, error.message


def test_pages_are_counted_drawn_and_taken_out() -> None:
    async def scene(pdfs: Pdfs) -> None:
        assert await pdfs.examine(THREE) == 3
        assert await pdfs.examine(THREE, pages=[0, 2]) == 3
        picture = await pdfs.draw(THREE, page=1, width=200)
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack_from(">II", picture, 16) == (200, 259)
        start = picture.index(b"IDAT")
        rows = zlib.decompress(picture[start + 4 : start + 4 + struct.unpack_from(">I", picture, start - 4)[0]])
        assert len(rows) == 259 * (1 + 3 * 200)
        # White paper with something dark on it.
        assert rows.count(255) > len(rows) * 0.9
        assert min(rows[1:601]) == 255
        assert min(b"".join(rows[at + 1 : at + 601] for at in range(0, len(rows), 601))) < 128
        alone = await pdfs.extract(THREE, page=2)
        assert await pdfs.examine(alone) == 1
        assert await pdfs.draw(alone, page=0, width=90) == await pdfs.draw(THREE, page=2, width=90)
        assert await pdfs.draw(alone, page=0, width=90) != await pdfs.draw(THREE, page=1, width=90)

    run(scene)


def test_a_very_high_page_is_drawn_narrower() -> None:
    async def scene(pdfs: Pdfs) -> tuple[int, int]:
        picture = await pdfs.draw(pdf("One").replace(b"612 792", b"100 9000"), page=0, width=1_000)
        width, height = struct.unpack_from(">II", picture, 16)
        return width, height

    width, height = run(scene)
    assert width < 300
    assert width * height < 4_100_000


def test_what_cannot_be_read_is_refused_with_its_reason() -> None:
    async def scene(pdfs: Pdfs) -> None:
        damaged = ("document_unreadable", None, "The PDF is damaged and cannot be read")
        assert await refusal(pdfs, THREE[:150]) == damaged
        assert await refusal(pdfs, b"%PDF-1.7\n%%EOF") == damaged
        code, _, message = await refusal(pdfs, encrypted_pdf())
        assert (code, "encrypted" in message) == ("document_encrypted", True)
        assert (await refusal(pdfs, pdf())) == ("document_unreadable", None, "The PDF has no pages")
        assert await refusal(pdfs, THREE, [1, 3]) == (
            None,
            "pages",
            "The PDF has 3 pages, numbered from 0; there is no page 3",
        )
        many = pdf(*["x"] * 1_001)
        assert (await refusal(pdfs, many))[:2] == ("document_too_large", "pages")
        assert await pdfs.examine(many, pages=[1_000]) == 1_001
        huge = THREE.replace(b"612 792", b"90000 90000")
        assert (await refusal(pdfs, huge))[:2] == ("document_too_large", None)
        assert (await refusal(pdfs, with_stream(THREE, b"x", b"/Width 99999 /Height 99999")))[0] == "document_too_large"
        assert await pdfs.examine(THREE) == 3

    run(scene)


def test_a_file_that_takes_too_long_is_refused_and_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(pdfs: Pdfs) -> None:
        assert await pdfs.examine(THREE) == 3
        (reader,) = pdfs._idle
        os.kill(reader.pid, signal.SIGSTOP)
        monkeypatch.setattr(pdfs_module, "SECONDS", 0.05)
        assert (await refusal(pdfs, THREE))[2] == "The PDF takes too long to read"
        assert not reader.lives
        monkeypatch.undo()
        assert await pdfs.examine(THREE) == 3

    run(scene)


def test_a_file_that_brings_its_process_down_is_refused_and_nothing_else_is() -> None:
    async def scene(pdfs: Pdfs) -> None:
        assert await pdfs.examine(THREE) == 3
        (reader,) = pdfs._idle
        os.kill(reader.pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(0.05, os.kill, reader.pid, signal.SIGKILL)
        assert (await refusal(pdfs, THREE))[0] == "document_unreadable"
        assert await pdfs.examine(THREE) == 3
        # One that died while nobody asked it anything is no file's fault.
        (reader,) = pdfs._idle
        os.kill(reader.pid, signal.SIGKILL)
        await reader.ended()
        assert await pdfs.examine(THREE) == 3

    run(scene)


def test_many_at_once_share_a_few_processes() -> None:
    async def scene(pdfs: Pdfs) -> int:
        assert await asyncio.gather(*[pdfs.examine(THREE) for _ in range(12)]) == [3] * 12
        return len(pdfs._idle)

    assert run(scene) == pdfs_module.READERS


def test_its_processes_hold_nothing_of_ours_and_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "not for strangers' files")

    async def scene(pdfs: Pdfs) -> tuple[int, bytes]:
        await pdfs.examine(THREE)
        (reader,) = pdfs._idle
        return reader.pid, await asyncio.to_thread(Path(f"/proc/{reader.pid}/environ").read_bytes)

    pid, environment = run(scene)
    assert b"PATH=" in environment
    assert b"SECRET_KEY" not in environment
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_where_no_process_can_be_started_the_document_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdfs_module, "PROGRAM", "gateway.nothing_of_that_name")

    async def scene(pdfs: Pdfs) -> None:
        with pytest.raises(UpstreamUnavailable):
            await pdfs.examine(THREE)

    run(scene)


def test_a_pdf_is_known_by_its_first_kilobyte() -> None:
    assert is_pdf(THREE)
    assert is_pdf(b"\n" * 900 + THREE)
    assert not is_pdf(b"\n" * 1_024 + THREE)
    assert not is_pdf(png(1, 1))
