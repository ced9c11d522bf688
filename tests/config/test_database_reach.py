"""A database that closes its doors and opens them again, as one pool of connections meets it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from django.db import OperationalError
from psycopg_pool import ConnectionPool

from config.database_reach import DatabaseAway, reaching_database
from config.databases import postgresql
from tests.services import postgresql_server, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgresql_server() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE tokens")
        yield url


@pytest.fixture
def pool(server: str) -> Iterator[ConnectionPool]:
    options = postgresql(server)["OPTIONS"]["pool"] | {"check": ConnectionPool.check_connection}
    with ConnectionPool(server.removesuffix("postgres") + "tokens", open=True, **options) as made:
        made.wait()
        yield made


def is_refused() -> bool:
    """Whether somebody who comes while another one tries, in vain, is sent away."""
    refused = False
    with suppress(OperationalError), reaching_database():
        try:
            with reaching_database():
                pass
        except DatabaseAway:
            refused = True
        raise OperationalError
    return refused


def test_who_waits_for_a_closed_database_is_one_at_a_time_and_is_let_in_soon_after_it_opens(
    server: str, pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    assert not is_refused()
    with psycopg.connect(server, autocommit=True) as keeper, caplog.at_level(logging.WARNING, logger="psycopg.pool"):
        keeper.execute("ALTER DATABASE tokens ALLOW_CONNECTIONS false")
        keeper.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'tokens'")
        pool.check()
        wait_until(is_refused, what="the database known to be away")
        # By doubled waits the next attempt after these would come half a minute later.
        wait_until(lambda: caplog.text.count("error connecting") >= 6, what="six attempts")
        keeper.execute("ALTER DATABASE tokens ALLOW_CONNECTIONS true")
    with reaching_database(), pool.connection(timeout=10) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert not is_refused()
