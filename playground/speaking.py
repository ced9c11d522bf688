"""A text being spoken: the sound is kept piece by piece as it comes, and whoever listens reads what is kept.

The listener may be in another process than the one that speaks, may come late or again: nothing is ever spoken, and
charged, a second time by listening.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.utils import timezone

from accounts.models import Team, User
from gateway.caller import Caller
from gateway.errors import CallError
from gateway.relay import Answer, Interrupted
from gateway.runtime import runtime
from gateway.speech_api import begin_speech, content_type, sound
from gateway.speech_schema import SpeechRequest
from playground import own_tasks
from playground.call_failure import CallFailed, problem
from playground.history import SoundPiece, Speech
from playground.keeping import keep
from playground.off_loop import off_loop

logger = logging.getLogger(__name__)

# A piece is kept when so much has come, or so long after the last one.
PIECE_BYTES = 256 * 1024
KEEP_SECONDS = 0.4
# How often a listener looks for more.
LOOK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be spoken, for whom; `body` is the request's."""

    owner: User
    team: Team
    caller: Caller
    body: dict[str, Any]


async def begin(wish: Wish) -> Speech:
    """The speech, its first sound on the way. Raises CallFailed; leaving does not end it."""
    begun: asyncio.Future[Speech | CallFailed] = asyncio.get_running_loop().create_future()
    own_tasks.begin(_Speaking(wish, begun).run())
    outcome = await asyncio.shield(begun)
    if isinstance(outcome, CallFailed):
        raise outcome
    return outcome


@dataclass(slots=True)
class _Speaking:
    wish: Wish
    begun: asyncio.Future[Speech | CallFailed]
    speech: Speech | None = None
    _unkept: bytearray = field(default_factory=bytearray)
    _bytes: int = 0
    _kept_at: float = 0.0

    async def run(self) -> None:
        state = Speech.State.FAILED
        error: dict[str, Any] | None = problem("internal")
        try:
            await self._speak()
            state, error = Speech.State.DONE, None
        except CallFailed as failure:
            error = failure.kept
            self._answer_with(failure)
        except asyncio.CancelledError:
            # Only a server that goes down cancels.
            error = problem("interrupted")
        except Exception:
            # The edge of the task: whatever happened, nobody must wait for ever.
            logger.exception("speaking failed")
        finally:
            await asyncio.shield(asyncio.ensure_future(self._end(state, error)))

    async def _speak(self) -> None:
        request_id: uuid.UUID | None = None
        try:
            answer, request = await begin_speech(runtime(), self.wish.body, caller=self.wish.caller)
            request_id = answer.request_id
            async with answer:
                self.speech = await off_loop(partial(self._created, answer, request))
                self._answer_with(self.speech)
                keeper = asyncio.create_task(keep(Speech, self.speech.pk, unwanted=answer.stop))
                try:
                    await self._keep_all(answer, request)
                finally:
                    keeper.cancel()
        except CallError as error:
            raise CallFailed(error, request_id) from error
        except Interrupted:
            # The speech was deleted: nobody will hear the rest.
            return

    async def _keep_all(self, answer: Answer, request: SpeechRequest) -> None:
        self._kept_at = time.monotonic()
        async with aclosing(sound(answer, request)) as pieces:
            async for piece in pieces:
                self._unkept += piece
                due = time.monotonic() - self._kept_at >= KEEP_SECONDS
                if (due or len(self._unkept) >= PIECE_BYTES) and not await self._keep():
                    answer.stop()

    async def _keep(self) -> bool:
        """Write down what has come; False where the speech is gone."""
        data, self._unkept = bytes(self._unkept), bytearray()
        first_byte, self._bytes = self._bytes, self._bytes + len(data)
        self._kept_at = time.monotonic()
        return await off_loop(partial(self._kept, first_byte, data))

    # -- in the database -------------------------------------------------------------------------

    def _created(self, answer: Answer, request: SpeechRequest) -> Speech:
        body = self.wish.body
        return Speech.objects.create(
            owner=self.wish.owner,
            team=self.wish.team,
            model=body["model"],
            text=body["input"],
            settings={name: value for name, value in body.items() if name not in ("model", "input")},
            content_type=content_type(answer, request).decode("latin-1")[:100],
            request_id=answer.request_id,
        )

    def _kept(self, first_byte: int, data: bytes) -> bool:
        speech = self.speech
        assert speech is not None
        if not Speech.objects.working().filter(pk=speech.pk).update(touched_at=timezone.now()):
            return False
        if data:
            SoundPiece.objects.create(speech=speech, first_byte=first_byte, end_byte=first_byte + len(data), data=data)
        return True

    async def _end(self, state: Speech.State, error: dict[str, Any] | None) -> None:
        if self.speech is not None and await self._keep():
            speech = Speech.objects.working().filter(pk=self.speech.pk)
            await off_loop(partial(speech.update, state=state, error=error))
        self._answer_with(CallFailed(CallError("")))

    def _answer_with(self, outcome: Speech | CallFailed) -> None:
        if not self.begun.done():
            self.begun.set_result(outcome)


# -- listening -----------------------------------------------------------------------------------


async def listen(speech_id: uuid.UUID) -> AsyncIterator[bytes]:
    """The sound from its beginning, as it comes, to its end."""
    at = 0
    while True:
        working, pieces = await off_loop(partial(_heard, speech_id, at))
        for piece in pieces:
            at = piece.end_byte
            yield bytes(piece.data)
        if not pieces and not working:
            return
        if not pieces:
            await asyncio.sleep(LOOK_SECONDS)


def _heard(speech_id: uuid.UUID, at: int) -> tuple[bool, list[SoundPiece]]:
    # Asked first: what is written before the end is then seen.
    Speech.objects.filter(pk=speech_id).close_cut_off()
    working = Speech.objects.working().filter(pk=speech_id).exists()
    return working, list(SoundPiece.objects.filter(speech_id=speech_id, first_byte__gte=at)[:4])


async def part(speech_id: uuid.UUID, *, first: int, last: int) -> AsyncIterator[bytes]:
    """The bytes from `first` to `last`, both included, of sound that is complete."""
    at = first
    while at <= last:
        piece = await off_loop(partial(_piece_at, speech_id, at))
        if piece is None:
            return
        yield bytes(piece.data)[at - piece.first_byte : last + 1 - piece.first_byte]
        at = piece.end_byte


def _piece_at(speech_id: uuid.UUID, at: int) -> SoundPiece | None:
    return SoundPiece.objects.filter(speech_id=speech_id, first_byte__lte=at, end_byte__gt=at).first()
