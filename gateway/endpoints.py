"""Dedicated endpoints: what a team's admins do with them, and how a request finds one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import httpx
from django.db import transaction
from django.utils import timezone

from accounts import key_epoch
from accounts.audit import Action, Actor, record
from accounts.models import Team, User
from accounts.sealing import Unreadable
from gateway.database import in_database
from gateway.models import DedicatedEndpoint

type Epoch = Callable[[], Awaitable[bytes | None]]

MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint as the data path needs it. `fault` says why it cannot be used at all."""

    slug: str
    team_id: int
    url: httpx.URL
    api_key: str = field(repr=False)
    fault: str = ""


class EndpointBook:
    """Endpoints by slug, trusted while the key epoch stands still, as keys are."""

    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._known: dict[str, tuple[bytes, Target]] = {}

    async def find(self, slug: str) -> Target | None:
        epoch = await self._epoch()
        known = self._known.get(slug)
        if known and epoch is not None and known[0] == epoch:
            return known[1]
        target = await in_database(_load, slug)
        if target is None:
            self._known.pop(slug, None)
        elif epoch is not None:
            while len(self._known) >= MAX_CACHED:
                del self._known[next(iter(self._known))]
            self._known[slug] = epoch, target
        return target


def _load(slug: str) -> Target | None:
    endpoint = DedicatedEndpoint.objects.filter(slug=slug).first()
    return target_of(endpoint) if endpoint else None


def target_of(endpoint: DedicatedEndpoint) -> Target:
    fault = f"The endpoint {endpoint.slug} is switched off." if endpoint.disabled_at else ""
    try:
        api_key = endpoint.api_key
    except Unreadable:
        api_key, fault = "", f"The key of the endpoint {endpoint.slug} cannot be read any more; enter it again."
    return Target(endpoint.slug, endpoint.team_id, httpx.URL(endpoint.base_url), api_key, fault)


# -- verbs ---------------------------------------------------------------------------------------


def register_endpoint(
    *, team: Team, created_by: User, slug: str, name: str, base_url: str, kind: str, api_key: str, actor: Actor
) -> DedicatedEndpoint:
    endpoint = DedicatedEndpoint(
        team=team, created_by=created_by, slug=slug, name=name, base_url=base_url.rstrip("/"), kind=kind
    )
    endpoint.api_key = api_key
    with transaction.atomic():
        endpoint.save()
        _record(endpoint, "endpoint added", actor, address=endpoint.base_url)
    key_epoch.bump()
    return endpoint


def switch_endpoint(*, endpoint: DedicatedEndpoint, on: bool, actor: Actor) -> None:
    with transaction.atomic():
        changed = DedicatedEndpoint.objects.filter(pk=endpoint.pk, disabled_at__isnull=not on).update(
            disabled_at=None if on else timezone.now()
        )
        if changed:
            _record(endpoint, "endpoint switched on" if on else "endpoint switched off", actor)
    key_epoch.bump()


def delete_endpoint(*, endpoint: DedicatedEndpoint, actor: Actor) -> None:
    with transaction.atomic():
        _record(endpoint, "endpoint deleted", actor, address=endpoint.base_url)
        DedicatedEndpoint.objects.filter(pk=endpoint.pk).delete()
    key_epoch.bump()


def _record(endpoint: DedicatedEndpoint, what: str, actor: Actor, **details: str) -> None:
    """Endpoints are a team's settings, and stand in its log as such."""
    noted = {"change": what, "endpoint": endpoint.slug, **details}
    record(actor=actor, action=Action.TEAM_CHANGED, team=endpoint.team, object=endpoint.team, details=noted)
