"""PDFs, opened in processes of their own: how many pages, a page as a picture, a page alone.

Nothing here trusts a file. Each question has its time; a process that takes longer, or that the file has brought
down, is killed, the file is refused, and the next question gets a new process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from gateway.document_limits import UNREADABLE, Unfit
from gateway.errors import UpstreamUnavailable

type Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "gateway.pdf_reader"
# At most so many at a time; more files wait.
READERS = 2
SECONDS = 20.0
START_SECONDS = 30.0
PIECE_BYTES = 1024 * 1024
# What finding the interpreter and its libraries may need; secrets of the environment stay here.
KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def is_pdf(data: bytes) -> bool:
    # Readers take a header anywhere in the first kilobyte.
    return b"%PDF-" in data[:1024]


class Pdfs:
    """Each question raises Unfit for a file that cannot be read, UpstreamUnavailable where nothing can be opened."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(READERS)
        self._idle: list[Reader] = []

    async def examine(self, data: bytes, *, pages: list[int] | None = None) -> int:
        """The number of pages of a PDF all of whose wanted pages (None: all) can be read."""
        head, _ = await self._ask({"do": "examine", "pages": pages}, data)
        return int(head["pages"])

    async def draw(self, data: bytes, *, page: int, width: int) -> bytes:
        """A page as a PNG."""
        _, made = await self._ask({"do": "draw", "page": page, "width": width}, data)
        return made

    async def extract(self, data: bytes, *, page: int) -> bytes:
        """A PDF of that page alone."""
        _, made = await self._ask({"do": "extract", "page": page}, data)
        return made

    async def aclose(self) -> None:
        while self._idle:
            await self._idle.pop().end()

    async def _reader(self) -> Reader:
        while self._idle:
            reader = self._idle.pop()
            if reader.lives:
                return reader
            await reader.end()
        return await Reader.start()

    async def _ask(self, question: Json, data: bytes) -> tuple[Json, bytes]:
        async with self._places:
            reader = await self._reader()
            try:
                head, made = await reader.ask(question, data)
            except BaseException:
                # Half an answer may be on its way: this one can be asked nothing more.
                await asyncio.shield(reader.end())
                raise
            self._idle.append(reader)
        if "refusal" in head:
            raise Unfit(head["refusal"], code=head["code"], param=head["param"])
        return head, made


class Reader:
    """One process, asked one question after the other."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(cls) -> Reader:
        environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", PROGRAM, cwd=ROOT, env=environment, stdin=PIPE, stdout=PIPE
        )
        reader = cls(process)
        try:
            async with asyncio.timeout(START_SECONDS):
                await reader._hear()
        except BaseException as error:
            await asyncio.shield(reader.end())
            if isinstance(error, TimeoutError | EOFError):
                raise UpstreamUnavailable("Documents cannot be looked into at the moment.") from error
            raise
        return reader

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.returncode is None

    async def ask(self, question: Json, data: bytes) -> tuple[Json, bytes]:
        try:
            async with asyncio.timeout(SECONDS):
                await self._say(question, data)
                return await self._hear()
        except TimeoutError:
            raise Unfit("The PDF takes too long to read", code=UNREADABLE) from None
        except (EOFError, ConnectionError):
            raise Unfit("The PDF is damaged and cannot be read", code=UNREADABLE) from None

    async def end(self) -> None:
        if self.lives:
            self._process.kill()
        await self.ended()

    async def ended(self) -> None:
        await self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    async def _say(self, question: Json, data: bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps({**question, "size": len(data)}).encode() + b"\n")
        # Piece by piece: the loop has other calls to serve.
        for at in range(0, len(data), PIECE_BYTES):
            stdin.write(data[at : at + PIECE_BYTES])
            await stdin.drain()

    async def _hear(self) -> tuple[Json, bytes]:
        stdout = self._process.stdout
        assert stdout is not None
        line = await stdout.readline()
        if not line:
            raise EOFError
        head: Json = json.loads(line)
        return head, await stdout.readexactly(head["size"])
