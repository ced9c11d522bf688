"""Several reads of one moment of the ledger, each bounded in time on PostgreSQL.

Raters go on meanwhile; without this a report's parts might be those of two moments and not add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection, transaction

# A report takes a tenth of a second; what takes longer than this helps nobody and costs everybody.
TIMEOUT_SECONDS = 10
_CANCELLED = "57014"


class TookTooLong(Exception):
    """The database was stopped: the question is too large to be answered while somebody waits."""


@contextmanager
def one_moment(*, timeout_seconds: float = TIMEOUT_SECONDS) -> Iterator[None]:
    """Reads only. Within another one, or a transaction of the caller's, it is that one's moment."""
    if connection.in_atomic_block or _is_in_transaction():
        yield
    elif connection.vendor == "postgresql":
        with _on_postgresql(timeout_seconds):
            yield
    else:
        with _on_sqlite():
            yield


def _is_in_transaction() -> bool:
    """Of Django's own SQLite knows nothing, of ours Django does not."""
    return connection.vendor == "sqlite" and bool(connection.connection and connection.connection.in_transaction)


@contextmanager
def _on_postgresql(timeout_seconds: float) -> Iterator[None]:
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(
                    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;"
                    # A few thousand rows are added up sooner than helpers are started or a plan is compiled for them.
                    "SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL jit = off;"
                    f"SET LOCAL statement_timeout = {int(timeout_seconds * 1_000)}"
                )
            yield
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") == _CANCELLED:
            raise TookTooLong from error
        raise


@contextmanager
def _on_sqlite() -> Iterator[None]:
    """Django's own transactions take the write lock at once; this one only looks."""
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        try:
            yield
        finally:
            # Nothing was written: both ends are the same.
            cursor.execute("ROLLBACK")
