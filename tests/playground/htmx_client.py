"""A signed-in person's browser that asks as HTMX does, unless told otherwise."""

from __future__ import annotations

from typing import Any

from django.test import AsyncClient

from accounts.models import User

HTMX = [(b"hx-request", b"true")]


class HtmxClient(AsyncClient):
    async def request(self, **request: Any) -> Any:
        names = {name for name, _value in request["headers"]}
        request["headers"] += [(name, value) for name, value in HTMX if name not in names]
        return await super().request(**request)


async def htmx_client(user: User) -> AsyncClient:
    client = HtmxClient()
    await client.aforce_login(user)
    return client
