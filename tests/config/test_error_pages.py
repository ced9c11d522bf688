from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.db.backends.signals import connection_created
from django.test import AsyncClient

from accounts.models import User


@pytest.mark.django_db(transaction=True)
def test_an_error_page_keeps_no_connection() -> None:
    opened: list[tuple[str, Any]] = []

    def note(connection: Any, **_kwargs: object) -> None:
        opened.append((threading.current_thread().name, connection))

    async def scenario() -> None:
        client = AsyncClient()
        await client.aforce_login(await sync_to_async(User.objects.create_user)("mei@example.com"))
        response = await client.get("/no/such/page")
        assert response.status_code == 404
        assert b"mei" in response.content
        await sync_to_async(connections.close_all)()

    connection_created.connect(note)
    try:
        asyncio.run(scenario())
    finally:
        connection_created.disconnect(note)
    in_the_pool = [connection for thread, connection in opened if thread.startswith("asyncio_")]
    assert in_the_pool
    assert [connection.connection for connection in in_the_pool] == [None] * len(in_the_pool)
