from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient

from accounts.models import User


@pytest.mark.django_db(transaction=True)
def test_an_error_page_keeps_no_connection() -> None:
    async def scenario() -> None:
        client = AsyncClient()
        await client.aforce_login(await sync_to_async(User.objects.create_user)("mei@example.com"))
        response = await client.get("/no/such/page")
        assert response.status_code == 404
        assert b"mei" in response.content
        # The pool's thread that rendered it is idle, so it is the one that answers here.
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, lambda: connections["default"].connection) is None
        await sync_to_async(connections.close_all)()

    asyncio.run(scenario())
