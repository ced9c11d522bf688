"""One connection to Redis for whatever is asked of it: the commands of one turn of the event loop leave in one write.

redis-py reads the URL, hiredis speaks the protocol. With redis-py's own pipelines Redis cost a request more processor
time than all the rest of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import hiredis
from redis.asyncio import ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as Silent

type Word = bytes | str | int


class Script:
    def __init__(self, text: str) -> None:
        self.text = text
        self.sha1 = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def reason(error: RedisError) -> str:
    """Why there is no answer, for the log: Redis' code for it, never the text, which may repeat what was said."""
    code = str(error).partition(" ")[0] if isinstance(error, ResponseError) else ""
    return code if code.isalpha() and code.isupper() else type(error).__name__


def _packed(command: tuple[Word, ...]) -> bytes:
    # Its types say that it takes one word.
    packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]
    return packed


class _Asked:
    __slots__ = ("answer", "at", "otherwise", "packed")

    def __init__(
        self, answer: asyncio.Future[Any], command: tuple[Word, ...], otherwise: tuple[Word, ...] = ()
    ) -> None:
        self.answer = answer
        self.packed = _packed(command)
        # Asked instead where Redis does not know the script (yet, or any more).
        self.otherwise = otherwise
        # By the loop's clock.
        self.at = 0.0

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class _Wire(asyncio.Protocol):
    """One connection: commands and, in the same order, their answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_seconds: float) -> None:
        self.is_open = False
        self._loop = loop
        self._timeout_seconds = timeout_seconds
        self._reader = hiredis.Reader()
        self._asked: deque[_Asked] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()

    def send(self, asked: list[_Asked]) -> None:
        assert self._transport is not None
        now = self._loop.time()
        for one in asked:
            one.at = now
        self._asked.extend(asked)
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_seconds, self._on_timer)
        # The last: should it fail, those who wait are told when their time is up.
        self._transport.write(b"".join([one.packed for one in asked]))

    def keep_alive(self, options: Mapping[int, int | bytes]) -> None:
        assert self._transport is not None
        connected = self._transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options.items():
            connected.setsockopt(socket.IPPROTO_TCP, option, value)

    async def aclose(self) -> None:
        """Over TLS a goodbye goes there and back; it is waited for, so that nothing of it outlives the loop."""
        assert self._transport is not None
        self.is_open = False
        self._transport.close()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_seconds):
                    await self._lost.wait()
        finally:
            self._transport.abort()
        await self._lost.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        again: list[_Asked] = []
        try:
            self._reader.feed(data)
            # No answer is False in this version of the protocol: that stands for one that is not whole yet.
            while self._asked and (answer := self._reader.gets()) is not False:
                one = self._asked.popleft()
                if not isinstance(answer, hiredis.ReplyError):
                    if not one.answer.done():
                        one.answer.set_result(answer)
                elif one.otherwise and str(answer).startswith("NOSCRIPT"):
                    one.packed, one.otherwise = _packed(one.otherwise), ()
                    again.append(one)
                else:
                    one.fail(ResponseError(str(answer)))
            if not self._asked and self._reader.has_data():
                # It would be taken for the next one's answer.
                self.fail(Lost("more than was asked for"))
        except hiredis.ProtocolError as error:
            self.fail(Lost(str(error)))
        if again and self.is_open:
            self.send(again)
        else:
            for one in again:
                one.fail(Lost("the connection was lost"))

    def connection_lost(self, error: Exception | None) -> None:
        self._lost.set()
        self.fail(Lost(str(error or "closed")))

    def _on_timer(self) -> None:
        self._timer = None
        if not self._asked:
            return
        left_seconds = self._asked[0].at + self._timeout_seconds - self._loop.time()
        if left_seconds <= 0:
            self.fail(Silent("no answer in time"))
        else:
            self._timer = self._loop.call_later(left_seconds, self._on_timer)

    def fail(self, error: RedisError) -> None:
        """What comes from now on belongs to nothing that was asked."""
        self.is_open = False
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._transport:
            self._transport.abort()
        while self._asked:
            self._asked.popleft().fail(error)


class RedisLine:
    """Connects when it is needed, and anew once a connection is lost."""

    def __init__(self, url: str, *, timeout_seconds: float) -> None:
        # Never connected itself: what the URL says.
        self._target = ConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]
        self._timeout_seconds = timeout_seconds
        self._wire: _Wire | None = None
        self._unsent: list[_Asked] = []
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False

    def ask(self, *command: Word) -> asyncio.Future[Any]:
        """Its answer, made of bytes, whole numbers, lists and None; a RedisError where there is none in time."""
        return self._queue(command)

    def run(self, script: Script, *arguments: Word) -> asyncio.Future[Any]:
        """What a script without keys returns, as `ask` does."""
        return self._queue(("EVALSHA", script.sha1, 0, *arguments), ("EVAL", script.text, 0, *arguments))

    async def aclose(self) -> None:
        self._closed = True
        if self._connecting:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        self._fail(Lost("closed"))
        if self._wire:
            await self._wire.aclose()

    def _queue(self, command: tuple[Word, ...], otherwise: tuple[Word, ...] = ()) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._unsent.append(_Asked(answer, command, otherwise))
        if len(self._unsent) == 1:
            # What else comes in this turn goes with it.
            loop.call_soon(self._send)
        return answer

    def _send(self) -> None:
        if self._closed:
            self._fail(Lost("closed"))
        elif self._wire and self._wire.is_open:
            # For whoever has given up meanwhile nothing is done.
            unsent, self._unsent = [one for one in self._unsent if not one.answer.done()], []
            if unsent:
                self._wire.send(unsent)
        elif self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name="connection to Redis")

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                self._wire = await self._open()
        except TimeoutError:
            self._fail(Silent("no connection in time"))
        except Exception as error:  # noqa: BLE001 -- whatever it is, it belongs to those who wait for an answer
            self._fail(error if isinstance(error, RedisError) else Lost(str(error)))
        finally:
            self._connecting = None
        if self._unsent:
            self._send()

    async def _open(self) -> _Wire:
        """Connected, signed in, and at the database of the URL."""
        loop = asyncio.get_running_loop()
        target = self._target
        wire = _Wire(loop, self._timeout_seconds)
        commands: list[tuple[Word, ...]] = []
        if target.username or target.password:
            commands.append(("AUTH", *([target.username] if target.username else []), target.password or ""))
        if target.db:
            commands.append(("SELECT", target.db))
        try:
            if isinstance(target, UnixDomainSocketConnection):
                await loop.create_unix_connection(lambda: wire, target.path)
            else:
                context = target.ssl_context.get() if isinstance(target, SSLConnection) else None
                await loop.create_connection(lambda: wire, target.host, int(target.port), ssl=context)
                if target.socket_keepalive:
                    # As redis-py does: a firewall on the way forgets a connection that says nothing.
                    wire.keep_alive(target.socket_keepalive_options)
            asked = [_Asked(loop.create_future(), command) for command in commands]
            if asked:
                wire.send(asked)
                await asyncio.gather(*(one.answer for one in asked))
        except BaseException:
            wire.fail(Lost("not let in"))
            raise
        return wire

    def _fail(self, error: RedisError) -> None:
        unsent, self._unsent = self._unsent, []
        for one in unsent:
            one.fail(error)
