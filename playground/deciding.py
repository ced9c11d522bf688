"""A decision being made and kept. It is finished even if whoever asked has left: the model works on it anyway."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from accounts.models import Team, User
from gateway.caller import Caller
from gateway.data_url import data_url
from gateway.errors import CallError
from gateway.runtime import runtime
from gateway.systemone_api import begin_decision
from gateway.systemone_api import decide as decided
from playground import own_tasks
from playground.call_failure import CallFailed
from playground.history import Decision, DecisionPicture
from playground.off_loop import off_loop

# Not the second half of an escaped backslash.
NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


@dataclass(frozen=True, slots=True)
class Picture:
    """A video as well."""

    media_type: str
    data: bytes

    @property
    def is_video(self) -> bool:
        return self.media_type.startswith("video/")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be decided, for whom."""

    owner: User
    team: Team
    caller: Caller
    model: str
    state: str
    questions: dict[str, Any]
    pictures: tuple[Picture, ...] = ()

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.model, "state": self.state, "questions": self.questions}
        for picture in self.pictures:
            name = "videos" if picture.is_video else "images"
            body.setdefault(name, []).append(data_url(picture.media_type, picture.data))
        return body


async def decide(wish: Wish) -> Decision:
    """Raises CallFailed."""
    return await own_tasks.result_of(_decide(wish))


async def _decide(wish: Wish) -> Decision:
    request_id: uuid.UUID | None = None
    try:
        answer, asked = await begin_decision(runtime(), wish.body(), caller=wish.caller)
        request_id = answer.request_id
        document = await decided(answer, asked)
    except CallError as error:
        raise CallFailed(error, request_id) from error
    return await off_loop(partial(_keep, wish, document, request_id))


def _without_nul(document: dict[str, Any]) -> dict[str, Any]:
    """A model server may send any text; PostgreSQL's has no NUL."""
    text = json.dumps(document)
    kept: dict[str, Any] = json.loads(NUL.sub(r"\1", text)) if "\\u0000" in text else document
    return kept


def _keep(wish: Wish, document: dict[str, Any], request_id: uuid.UUID) -> Decision:
    with transaction.atomic():
        decision = Decision.objects.create(
            owner=wish.owner,
            team=wish.team,
            model=wish.model,
            state=wish.state,
            questions=wish.questions,
            answers=_without_nul(document),
            request_id=request_id,
        )
        DecisionPicture.objects.bulk_create(
            DecisionPicture(decision=decision, media_type=picture.media_type, data=picture.data)
            for picture in wish.pictures
        )
    return decision
